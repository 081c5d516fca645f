"""Bessel functions of the orders 0 and 1, modified and plain, in f64 also for f32.

Near the origin each is a polynomial (the second kinds beside a logarithm times the first), far out
one in 1/x times the square root and the exponential or the wave that it behaves like.
"""

from __future__ import annotations

import math

from monograph.ir.types import f64
from monograph.kernel.mathlib.exponential import exp, exp_of_negative
from monograph.kernel.mathlib.logarithm import log
from monograph.kernel.mathlib.number import Number, compute_in_f64, constant, fma, horner, where
from monograph.kernel.mathlib.trigonometric import cos, sin

# The modified functions of the first kind: e^-x I0(x) and e^-x I1(x) / x in x/4 - 1 for x ≤ 8,
# and times √x in 16/x - 1 beyond; relative error: 2^-51 at most.
I0_NEAR = (
    float.fromhex("0x1.a7f09f8eedf5ap-3"),
    float.fromhex("-0x1.cedda00486203p-4"),
    float.fromhex("0x1.8322d1d8a3bcbp-4"),
    float.fromhex("-0x1.6cb8d0c915d76p-4"),
    float.fromhex("0x1.65c235bfea67cp-4"),
    float.fromhex("-0x1.5c028fe63ac01p-4"),
    float.fromhex("0x1.44b6196a7e5edp-4"),
    float.fromhex("-0x1.1cd73a8f65403p-4"),
    float.fromhex("0x1.d11e10f563ea4p-5"),
    float.fromhex("-0x1.602411cd57d69p-5"),
    float.fromhex("0x1.ee6f56579a579p-6"),
    float.fromhex("-0x1.427b0ab901a2dp-6"),
    float.fromhex("0x1.87e8674c081c8p-7"),
    float.fromhex("-0x1.bd25799e2f366p-8"),
    float.fromhex("0x1.da1aa5c31040bp-9"),
    float.fromhex("-0x1.dafac01bde31bp-10"),
    float.fromhex("0x1.c0f4746e5c54ap-11"),
    float.fromhex("-0x1.9176a6e8e5197p-12"),
    float.fromhex("0x1.54986036f96f9p-13"),
    float.fromhex("-0x1.1302f643478c2p-14"),
    float.fromhex("0x1.a6c3624a6c1a1p-16"),
    float.fromhex("-0x1.3429316a1f562p-17"),
    float.fromhex("0x1.b1d84b43be1a7p-19"),
    float.fromhex("-0x1.328a2c8357506p-20"),
    float.fromhex("0x1.88e7c898f8b9dp-22"),
    float.fromhex("-0x1.7122a4a4cd22cp-24"),
    float.fromhex("0x1.cc61933fa56fap-26"),
    float.fromhex("-0x1.1839e2f01f649p-26"),
    float.fromhex("0x1.2dfb90af4b9ccp-28"),
)
I1_NEAR = (
    float.fromhex("0x1.6e14eb8e5d319p-5"),
    float.fromhex("-0x1.f4bb071a7752ap-5"),
    float.fromhex("0x1.16c390ddb08edp-4"),
    float.fromhex("-0x1.1881379ffb627p-4"),
    float.fromhex("0x1.0530f817ff9fcp-4"),
    float.fromhex("-0x1.c4daa5133fb98p-5"),
    float.fromhex("0x1.6df95e8be0c47p-5"),
    float.fromhex("-0x1.13d5f358ccda3p-5"),
    float.fromhex("0x1.84125b0d13a2ap-6"),
    float.fromhex("-0x1.fe3d9bfac793cp-7"),
    float.fromhex("0x1.3a0c1a021d4e6p-7"),
    float.fromhex("-0x1.6ab6a3e67aad6p-8"),
    float.fromhex("0x1.89f8a67329811p-9"),
    float.fromhex("-0x1.93681fb46e1cap-10"),
    float.fromhex("0x1.8656c3457cd2bp-11"),
    float.fromhex("-0x1.65bfbdc51c701p-12"),
    float.fromhex("0x1.3742f9b2f5b02p-13"),
    float.fromhex("-0x1.01a11a7a8dff7p-14"),
    float.fromhex("0x1.96942f24ec5d6p-16"),
    float.fromhex("-0x1.32923121b37e5p-17"),
    float.fromhex("0x1.ba0fc13069d74p-19"),
    float.fromhex("-0x1.300fe978e9508p-20"),
    float.fromhex("0x1.93e9a08b4d036p-22"),
    float.fromhex("-0x1.0acdeab55f889p-23"),
    float.fromhex("0x1.459211f49b902p-25"),
    float.fromhex("-0x1.34c8bcd8ddda0p-27"),
    float.fromhex("0x1.6b6f1c670609fp-29"),
    float.fromhex("-0x1.856439397efd0p-30"),
    float.fromhex("0x1.937c2c973bbafp-32"),
)
I0_FAR = (
    float.fromhex("0x1.9bd428ad249a6p-2"),
    float.fromhex("0x1.b87969bb93ba8p-9"),
    float.fromhex("0x1.1daa72b55f9dbp-13"),
    float.fromhex("0x1.75e5ee721e1eep-17"),
    float.fromhex("0x1.8e5144bb464d4p-20"),
    float.fromhex("0x1.3f49a2e3b8357p-22"),
    float.fromhex("0x1.7d04e677e0132p-24"),
    float.fromhex("0x1.51d141f58e599p-25"),
    float.fromhex("0x1.73816166fcd86p-26"),
    float.fromhex("0x1.0333c31a37677p-27"),
    float.fromhex("-0x1.e90f104635ca3p-28"),
    float.fromhex("-0x1.caeb8bff81bd5p-27"),
    float.fromhex("-0x1.257a22a6ca475p-28"),
    float.fromhex("0x1.fc5102400a32bp-28"),
    float.fromhex("0x1.617064dc050a4p-28"),
    float.fromhex("-0x1.b986c823bdc7dp-29"),
    float.fromhex("-0x1.8d93317fe4985p-29"),
    float.fromhex("0x1.408ca9f1938d0p-30"),
    float.fromhex("0x1.065c53293cca8p-30"),
    float.fromhex("-0x1.51c403b2d11f7p-32"),
    float.fromhex("-0x1.3daa2d5744819p-33"),
    float.fromhex("0x1.6bce1757e6d05p-35"),
)
I1_FAR = (
    float.fromhex("0x1.8ebe783a8402fp-2"),
    float.fromhex("-0x1.3f796198ee635p-7"),
    float.fromhex("-0x1.cbc54df160b2dp-13"),
    float.fromhex("-0x1.f89c23068d907p-17"),
    float.fromhex("-0x1.ec8e1b2433bc6p-20"),
    float.fromhex("-0x1.76137b0213b31p-22"),
    float.fromhex("-0x1.ad82b98356236p-24"),
    float.fromhex("-0x1.727c9fa9b3d5bp-25"),
    float.fromhex("-0x1.92ebdfb1f28e8p-26"),
    float.fromhex("-0x1.213bdc8450ba4p-27"),
    float.fromhex("0x1.e92f3bef81c5dp-28"),
    float.fromhex("0x1.e0903ae345262p-27"),
    float.fromhex("0x1.497550264538fp-28"),
    float.fromhex("-0x1.01b5135d94702p-27"),
    float.fromhex("-0x1.7a8911c36d85ep-28"),
    float.fromhex("0x1.b20d498df586cp-29"),
    float.fromhex("0x1.a453564494b2fp-29"),
    float.fromhex("-0x1.3293b11700efcp-30"),
    float.fromhex("-0x1.13c41a59ec63ep-30"),
    float.fromhex("0x1.3c9d3a35d167ap-32"),
    float.fromhex("0x1.4ce6f87068b62p-33"),
    float.fromhex("-0x1.50c084b8d0d91p-35"),
)
# Those of the second kind, in x² for x ≤ 2: K0(x) + log(x/2) I0(x), (K1(x) - 1/x - log(x/2)
# I1(x)) / x, I0(x), I1(x) / x; and e^x √x times them in 4/x - 1 beyond. Error: 2^-55 at most.
K0_NEAR = (
    float.fromhex("-0x1.2788cfc6fb619p-1"),
    float.fromhex("0x1.b0ee6072093cfp-4"),
    float.fromhex("0x1.d877303904993p-7"),
    float.fromhex("0x1.1dd6286532843p-11"),
    float.fromhex("0x1.56b9b69da73ebp-17"),
    float.fromhex("0x1.f0f15ad160432p-24"),
    float.fromhex("0x1.e4e0c3260307bp-31"),
    float.fromhex("0x1.54d1db06ca662p-38"),
    float.fromhex("0x1.6967f63064744p-46"),
    float.fromhex("0x1.3cedab180ab08p-54"),
)
K1_NEAR = (
    float.fromhex("0x1.3c467e37db0c8p-5"),
    float.fromhex("-0x1.58773039049e7p-5"),
    float.fromhex("-0x1.73ddae5ee6a19p-9"),
    float.fromhex("-0x1.3a47ef81a3a0dp-14"),
    float.fromhex("-0x1.2462822a1c9b2p-20"),
    float.fromhex("-0x1.5b7a17923d9edp-27"),
    float.fromhex("-0x1.1fa40db66daccp-34"),
    float.fromhex("-0x1.5f6282ff397a7p-42"),
    float.fromhex("-0x1.49ae26c17782dp-50"),
    float.fromhex("-0x1.01eaa194234ecp-58"),
)
I0_OF_TWO = (
    float.fromhex("0x1.000000p+0"),
    float.fromhex("0x1.000000p-2"),
    float.fromhex("0x1.fffffffffffdcp-7"),
    float.fromhex("0x1.c71c71c71d576p-12"),
    float.fromhex("0x1.c71c71c6bf3c6p-18"),
    float.fromhex("0x1.2345679f6641ap-24"),
    float.fromhex("0x1.02e855de96016p-31"),
    float.fromhex("0x1.522c6da265b2ep-39"),
    float.fromhex("0x1.51b50f18c1997p-47"),
    float.fromhex("0x1.18dfc25abaa1cp-55"),
)
I1_OF_TWO = (
    float.fromhex("0x1.000000p-1"),
    float.fromhex("0x1.000000p-4"),
    float.fromhex("0x1.555555555554fp-9"),
    float.fromhex("0x1.c71c71c71cc50p-15"),
    float.fromhex("0x1.6c16c16bf4f96p-21"),
    float.fromhex("0x1.845c8a1ca55b4p-28"),
    float.fromhex("0x1.27e4f6ff7cde4p-35"),
    float.fromhex("0x1.522bd5722dd59p-43"),
    float.fromhex("0x1.2c425493fc9aep-51"),
    float.fromhex("0x1.bf5e6c2d978e1p-60"),
)
K0_FAR = (
    float.fromhex("0x1.37f5dd35f91a9p+0"),
    float.fromhex("-0x1.fd1328181db4cp-6"),
    float.fromhex("0x1.8d86f6465e4c8p-9"),
    float.fromhex("-0x1.f7130688edbb6p-12"),
    float.fromhex("0x1.a19652e3f870ap-14"),
    float.fromhex("-0x1.9efce51fd9dbfp-16"),
    float.fromhex("0x1.d5e9a9ac4c217p-18"),
    float.fromhex("-0x1.2618428e26e66p-19"),
    float.fromhex("0x1.8ec7037c480b9p-21"),
    float.fromhex("-0x1.20be678ebf830p-22"),
    float.fromhex("0x1.ba2c0b6f00d42p-24"),
    float.fromhex("-0x1.62dafe8c37e62p-25"),
    float.fromhex("0x1.25080f7299c17p-26"),
    float.fromhex("-0x1.f9e6bb24a5942p-28"),
    float.fromhex("0x1.04874557974bep-28"),
    float.fromhex("-0x1.eef6b7c2b8cb4p-30"),
    float.fromhex("0x1.2cb9dd5a41057p-34"),
    float.fromhex("0x1.1c4fe5add7f9ap-35"),
    float.fromhex("0x1.b6975bf5d0b0dp-31"),
    float.fromhex("-0x1.ef8158502389fp-32"),
    float.fromhex("-0x1.4fc702bb233e1p-32"),
    float.fromhex("0x1.8b54e463dcf6fp-33"),
    float.fromhex("0x1.db437b3756ee3p-34"),
    float.fromhex("-0x1.0ff353b6522b9p-34"),
)
K1_FAR = (
    float.fromhex("0x1.5cf785b4a0203p+0"),
    float.fromhex("0x1.a7520dfb3f9a2p-4"),
    float.fromhex("-0x1.6cd23ac7d4780p-8"),
    float.fromhex("0x1.81bb39793a047p-11"),
    float.fromhex("-0x1.24bdedb140cfep-13"),
    float.fromhex("0x1.1383aa178af9ep-15"),
    float.fromhex("-0x1.2cb02f3fd1c43p-17"),
    float.fromhex("0x1.6e6b788bcc93ap-19"),
    float.fromhex("-0x1.e6c933a5309cbp-21"),
    float.fromhex("0x1.5ace77f3979c2p-22"),
    float.fromhex("-0x1.060de00040970p-23"),
    float.fromhex("0x1.a004c284f981ep-25"),
    float.fromhex("-0x1.54a2187062250p-26"),
    float.fromhex("0x1.23c0ef8016a12p-27"),
    float.fromhex("-0x1.2868e81b65f6dp-28"),
    float.fromhex("0x1.17a286d3c30f7p-29"),
    float.fromhex("-0x1.d18aa335231bbp-34"),
    float.fromhex("-0x1.71eac295a240fp-36"),
    float.fromhex("-0x1.e07bfdbf70807p-31"),
    float.fromhex("0x1.0e918d63a976cp-31"),
    float.fromhex("0x1.6c873be37da05p-32"),
    float.fromhex("-0x1.ac82a3c6c88ecp-33"),
    float.fromhex("-0x1.038283246e99bp-33"),
    float.fromhex("0x1.284cd51c28dd5p-34"),
)
# The plain functions in x²/32 - 1 for x ≤ 8: J0(x), J1(x) / x, Y0(x) - 2/π log(x/2) J0(x),
# (Y1(x) - 2/π (log(x/2) J1(x) - 1/x)) / x; error: 2^-53 at most.
J0_NEAR = (
    float.fromhex("0x1.776fc5f84e280p-5"),
    float.fromhex("0x1.dc5071f1209f4p-1"),
    float.fromhex("-0x1.4c042a76a3d9ap-1"),
    float.fromhex("-0x1.9dbdd0f268edep-1"),
    float.fromhex("0x1.09d33c82734c7p+0"),
    float.fromhex("-0x1.03d2da095b4e5p-1"),
    float.fromhex("0x1.2afc33916d950p-3"),
    float.fromhex("-0x1.d27f3cd0c2e4dp-6"),
    float.fromhex("0x1.09f3448afe768p-8"),
    float.fromhex("-0x1.d11773b361d3dp-12"),
    float.fromhex("0x1.42bc90333e42cp-15"),
    float.fromhex("-0x1.6cc5264a6ec82p-19"),
    float.fromhex("0x1.56a7a3316688ap-23"),
    float.fromhex("-0x1.0ff8a9a497f9fp-27"),
    float.fromhex("0x1.71d0a205ca76dp-32"),
    float.fromhex("-0x1.b3bef5357b500p-37"),
    float.fromhex("0x1.c2c89e05a96ffp-42"),
    float.fromhex("-0x1.9a0777364b9b4p-47"),
)
J1_NEAR = (
    float.fromhex("-0x1.dc5071f1209f4p-5"),
    float.fromhex("0x1.4c042a76a3d9ap-4"),
    float.fromhex("0x1.364e5cb5ceb27p-3"),
    float.fromhex("-0x1.09d33c82734c7p-2"),
    float.fromhex("0x1.44c7908bb221ep-3"),
    float.fromhex("-0x1.c07a4d5a245fdp-5"),
    float.fromhex("0x1.982f5536aa883p-7"),
    float.fromhex("-0x1.09f3448afe526p-9"),
    float.fromhex("0x1.059d3114e70f5p-12"),
    float.fromhex("-0x1.936bb4404efbfp-16"),
    float.fromhex("0x1.f58f14a645713p-20"),
    float.fromhex("-0x1.00fdba22b4c2dp-23"),
    float.fromhex("0x1.b9f413c37f574p-28"),
    float.fromhex("-0x1.439726dff7834p-32"),
    float.fromhex("0x1.9882e6310da7dp-37"),
    float.fromhex("-0x1.c153538fa6d32p-42"),
    float.fromhex("0x1.b3c9bcacde2bfp-47"),
    float.fromhex("-0x1.754bd6eb5ec0dp-52"),
)
Y0_NEAR = (
    float.fromhex("-0x1.72b74bbdd8607p-2"),
    float.fromhex("-0x1.abf36a4259870p-2"),
    float.fromhex("0x1.5c66ef4d2f665p+0"),
    float.fromhex("-0x1.b31e39bdf5ea5p-3"),
    float.fromhex("-0x1.3d1a3c2cf3e27p-1"),
    float.fromhex("0x1.cb0102d915ec2p-2"),
    float.fromhex("-0x1.3c7dc9b8c3442p-3"),
    float.fromhex("0x1.14e9baa57e02dp-5"),
    float.fromhex("-0x1.571530a3c5c95p-8"),
    float.fromhex("0x1.400b23eceac97p-11"),
    float.fromhex("-0x1.d43ce57d773b3p-15"),
    float.fromhex("0x1.14a05a1efd459p-18"),
    float.fromhex("-0x1.0dfb9859e2227p-22"),
    float.fromhex("0x1.bb2df9e2f4179p-27"),
    float.fromhex("-0x1.36682baafe8a2p-31"),
    float.fromhex("0x1.77a67dd8c71c1p-36"),
    float.fromhex("-0x1.8e31f4580b155p-41"),
    float.fromhex("0x1.7247c37d4669ap-46"),
)
Y1_NEAR = (
    float.fromhex("0x1.717b235185ceep-5"),
    float.fromhex("-0x1.a92eafb5bfbebp-3"),
    float.fromhex("0x1.719265d0c16f7p-4"),
    float.fromhex("0x1.eda6c04165176p-4"),
    float.fromhex("-0x1.02e87689eed2ep-3"),
    float.fromhex("0x1.bd90575895a2bp-5"),
    float.fromhex("-0x1.cf132a67686f3p-7"),
    float.fromhex("0x1.4b3c8c2a8d236p-9"),
    float.fromhex("-0x1.5deef8649f1bap-12"),
    float.fromhex("0x1.1dbf18b2fad5bp-15"),
    float.fromhex("-0x1.74a8015cfe1c5p-19"),
    float.fromhex("0x1.8dcddfd5779e9p-23"),
    float.fromhex("-0x1.626f1eb0327ffp-27"),
    float.fromhex("0x1.0bca244f2684fp-31"),
    float.fromhex("-0x1.5bb18d59baa8ep-36"),
    float.fromhex("0x1.884058ff1812bp-41"),
    float.fromhex("-0x1.855cda8082235p-46"),
    float.fromhex("0x1.54a652ccdbdcfp-51"),
)
# Hankel's P and Q (x/8) in (8/x)² for x ≥ 8; error: 2^-52 at most.
P0 = (
    float.fromhex("0x1.000000p+0"),
    float.fromhex("-0x1.1ffffffff85cbp-10"),
    float.fromhex("0x1.cb5fffa3351d7p-16"),
    float.fromhex("-0x1.251eafd7d8027p-19"),
    float.fromhex("0x1.84ab2b222ebf5p-22"),
    float.fromhex("-0x1.b654370beee57p-24"),
    float.fromhex("0x1.6d780bf1d2e43p-25"),
    float.fromhex("-0x1.7d682fc37f441p-26"),
    float.fromhex("0x1.9352501984e74p-27"),
    float.fromhex("-0x1.5e27b02d89c34p-28"),
    float.fromhex("0x1.9570bb7717f81p-30"),
    float.fromhex("-0x1.c06487876a112p-33"),
)
Q0 = (
    float.fromhex("-0x1.ffffffffffff2p-7"),
    float.fromhex("0x1.2bffffffc02dbp-13"),
    float.fromhex("-0x1.d11dfe7bb6808p-18"),
    float.fromhex("0x1.ba4b6dd1e91aep-21"),
    float.fromhex("-0x1.85f0d5a4cfcd6p-23"),
    float.fromhex("0x1.11d21365f0a4ep-24"),
    float.fromhex("-0x1.0ded21b9e2e1bp-25"),
    float.fromhex("0x1.3c1b8637e7666p-26"),
    float.fromhex("-0x1.668eecf15538bp-27"),
    float.fromhex("0x1.44215855edef8p-28"),
    float.fromhex("-0x1.804a5bc5cf5e6p-30"),
    float.fromhex("0x1.af3b1c18a47f4p-33"),
)
P1 = (
    float.fromhex("0x1.000000p+0"),
    float.fromhex("0x1.dffffffff7e66p-10"),
    float.fromhex("-0x1.274fffcecce68p-15"),
    float.fromhex("0x1.5a6a1c7597158p-19"),
    float.fromhex("-0x1.b87f0a2b280e0p-22"),
    float.fromhex("0x1.e48c5e63245a5p-24"),
    float.fromhex("-0x1.8da61eaf26fe5p-25"),
    float.fromhex("0x1.9afdafa40e1f0p-26"),
    float.fromhex("-0x1.b03f9dcf281cap-27"),
    float.fromhex("0x1.7629a3d59c251p-28"),
    float.fromhex("-0x1.b0860364b3ee1p-30"),
    float.fromhex("0x1.dde01902750d3p-33"),
)
Q1 = (
    float.fromhex("0x1.7fffffffffffcp-5"),
    float.fromhex("-0x1.a3ffffffbc773p-13"),
    float.fromhex("0x1.1c3cff3294429p-17"),
    float.fromhex("-0x1.fe571f2b5111ap-21"),
    float.fromhex("0x1.b3d3338e2761bp-23"),
    float.fromhex("-0x1.2bf80d32da750p-24"),
    float.fromhex("0x1.23e12315c81b1p-25"),
    float.fromhex("-0x1.531dd61a39eb8p-26"),
    float.fromhex("0x1.7ef2dab7ca51ep-27"),
    float.fromhex("-0x1.59556765cecf4p-28"),
    float.fromhex("0x1.98dc252e6db78p-30"),
    float.fromhex("-0x1.ca6a573d15498p-33"),
)
NEAR = 8.0
NEAR_SECOND = 2.0


def _first_modified(order: int, size: Number) -> Number:
    """e^-x I(x) for x ≥ 0."""
    near_table, far_table = (I0_NEAR, I0_FAR) if order == 0 else (I1_NEAR, I1_FAR)
    near = horner(size.at_most(NEAR) * 0.25 - 1.0, near_table)
    near = near if order == 0 else near * size
    held = size.at_least(NEAR)
    far = horner(16.0 / held - 1.0, far_table) / held.sqrt()
    return where(size < NEAR, near, far)


def _multiply_by_exp(scaled: Number, size: Number) -> Number:
    """``scaled`` times e^x, in two steps: the factor alone would overflow too early."""
    half = exp(size * 0.5)
    return where(size < math.inf, scaled * half * half, size)


def _odd(x: Number, of_size: Number) -> Number:
    return where(x < 0.0, -of_size, of_size)


@compute_in_f64
def bessel_i0e(x: Number) -> Number:
    """e^-|x| times the modified function of the first kind, of order 0."""
    return _first_modified(0, abs(x))


@compute_in_f64
def bessel_i1e(x: Number) -> Number:
    """e^-|x| times the modified function of the first kind, of order 1."""
    return _odd(x, _first_modified(1, abs(x)))


@compute_in_f64
def bessel_i0(x: Number) -> Number:
    """The modified function of the first kind, of order 0."""
    return _multiply_by_exp(_first_modified(0, abs(x)), abs(x))


@compute_in_f64
def bessel_i1(x: Number) -> Number:
    """The modified function of the first kind, of order 1."""
    return _odd(x, _multiply_by_exp(_first_modified(1, abs(x)), abs(x)))


def _second_modified(order: int, x: Number) -> tuple[Number, Number]:
    """K(x) for 0 < x ≤ 2, and e^x K(x) beyond."""
    square = x * x
    logarithm = log(x * 0.5)
    if order == 0:
        near = fma(-logarithm, horner(square, I0_OF_TWO), horner(square, K0_NEAR))
    else:
        tail = fma(logarithm, horner(square, I1_OF_TWO), horner(square, K1_NEAR))
        near = fma(x, tail, 1.0 / x)
    held = x.at_least(NEAR_SECOND)
    far = horner(4.0 / held - 1.0, K0_FAR if order == 0 else K1_FAR) / held.sqrt()
    return near, far


def _where_positive(x: Number, result: Number, at_zero: float) -> Number:
    """``result``, but ``at_zero`` at 0 and NaN below."""
    edge = where(x.equals(0.0), constant(at_zero, f64), math.nan)
    return where(x > 0.0, result, edge)


def _decaying(order: int, x: Number) -> Number:
    near, far = _second_modified(order, x)
    # In two steps, lest the factor underflow before the result does.
    half = exp_of_negative(x * -0.5)
    return _where_positive(x, where(x < NEAR_SECOND, near, far * half * half), math.inf)


def _decaying_scaled(order: int, x: Number) -> Number:
    near, far = _second_modified(order, x)
    grown = near * exp(x.at_most(NEAR_SECOND))
    return _where_positive(x, where(x < NEAR_SECOND, grown, far), math.inf)


@compute_in_f64
def bessel_k0(x: Number) -> Number:
    """The modified function of the second kind, of order 0."""
    return _decaying(0, x)


@compute_in_f64
def bessel_k1(x: Number) -> Number:
    """The modified function of the second kind, of order 1."""
    return _decaying(1, x)


@compute_in_f64
def bessel_k0e(x: Number) -> Number:
    """e^x times the modified function of the second kind, of order 0."""
    return _decaying_scaled(0, x)


@compute_in_f64
def bessel_k1e(x: Number) -> Number:
    """e^x times the modified function of the second kind, of order 1."""
    return _decaying_scaled(1, x)


def _waves(order: int, size: Number) -> tuple[Number, Number]:
    """J(x) and Y(x) for x ≥ 8."""
    held = where(size < NEAR, constant(NEAR, f64), size.at_most(size.format.largest))
    inverse = NEAR / held
    square = inverse * inverse
    p = horner(square, P0 if order == 0 else P1)
    q = horner(square, Q0 if order == 0 else Q1) * inverse
    # The sine and cosine of x - (2ν + 1) π/4, times √2, from those of x itself.
    sine, cosine = sin(held), cos(held)
    if order == 0:
        along, across = cosine + sine, sine - cosine
    else:
        along, across = sine - cosine, -(cosine + sine)
    scale = held.sqrt() * math.sqrt(math.pi)
    return (p * along - q * across) / scale, (p * across + q * along) / scale


def _near_first(order: int, x: Number) -> Number:
    turned = x * x * (1 / 32) - 1.0
    return horner(turned, J0_NEAR) if order == 0 else x * horner(turned, J1_NEAR)


@compute_in_f64
def bessel_j0(x: Number) -> Number:
    """The function of the first kind, of order 0."""
    size = abs(x)
    return where(size < NEAR, _near_first(0, size), _zero_at_infinity(size, _waves(0, size)[0]))


@compute_in_f64
def bessel_j1(x: Number) -> Number:
    """The function of the first kind, of order 1."""
    size = abs(x)
    far = _zero_at_infinity(size, _waves(1, size)[0])
    return _odd(x, where(size < NEAR, _near_first(1, size), far))


def _zero_at_infinity(size: Number, result: Number) -> Number:
    return where(size.equals(math.inf), constant(0.0, f64), result)


def _second(order: int, x: Number) -> Number:
    turned = x * x * (1 / 32) - 1.0
    logarithm = log(x * 0.5) * (2 / math.pi)
    first = _near_first(order, x)
    if order == 0:
        near = fma(logarithm, first, horner(turned, Y0_NEAR))
    else:
        near = fma(logarithm, first, x * horner(turned, Y1_NEAR)) - (2 / math.pi) / x
    far = _zero_at_infinity(x, _waves(order, x)[1])
    return _where_positive(x, where(x < NEAR, near, far), -math.inf)


@compute_in_f64
def bessel_y0(x: Number) -> Number:
    """The function of the second kind, of order 0."""
    return _second(0, x)


@compute_in_f64
def bessel_y1(x: Number) -> Number:
    """The function of the second kind, of order 1."""
    return _second(1, x)


@compute_in_f64
def spherical_bessel_j0(x: Number) -> Number:
    """sin(x) / x; 1 at 0."""
    quotient = where(x.equals(0.0), 1.0, sin(x) / x)
    return _zero_at_infinity(abs(x), quotient)
