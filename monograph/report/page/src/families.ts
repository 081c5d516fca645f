// The colours of kernels: which family of ops a kind of kernel belongs to.

const FAMILY: Record<string, string> = {
  contraction: "contraction",
  attention: "contraction",
  convolution: "contraction",
  rows: "reduction",
  reduction: "reduction",
  pointwise: "pointwise",
  elementwise: "pointwise",
};

export function familyOfKind(kind: string): string {
  return FAMILY[kind] ?? "other";
}
