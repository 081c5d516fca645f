"""The pool's LLVM IR, first half: how a region is shared out, and what memory that takes."""

from __future__ import annotations

STATE = """
; The gate: generation (32 bits), seats (16 bits), workers inside (16 bits). Seats are only there
; while a region is open. Words that several cores write stand in cache lines of their own, two
; lines apart, since cores fetch lines in pairs.
@gate = internal global { i64, [120 x i8] } zeroinitializer, align 128

; The indices are cut into stretches, one a thread or nearly so: how much of each is taken.
%Taken = type { i64, [120 x i8] }
@taken = internal global [$most_stretches x %Taken] zeroinitializer, align 128

; What the open region does: body, context, total, how many indices are taken at a time, how long a
; stretch is, and how many there are.
%Region = type { ptr, ptr, i64, i64, i64, i64, [80 x i8] }
@region = internal global %Region zeroinitializer, align 128

; 1 while somebody owns the pool. The owner alone changes @region, @started and the workers.
@busy = internal global { i32, [124 x i8] } zeroinitializer, align 128

; How many workers exist, how long they spin, the most threads there may be, whether to end: words
; that hardly ever change, and that everybody reads.
@started = internal global i64 0, align 128
@spin = internal global i64 0, align 8
@most = internal global i64 1, align 8
@stopping = internal global i32 0, align 4

; A worker: whether it sleeps, the processor that it avoids, its index and its thread, which callers
; read; then what it alone writes: the last generation that it is done with, and what it sleeps on
; where there is no futex (a mutex and a condition variable).
%Worker = type { i32, i32, i64, i64, [104 x i8], i64, [120 x i8], [64 x i8], [64 x i8] }
@workers = internal global [$most_workers x %Worker] zeroinitializer, align 128

declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
"""
"""The memory of the pool."""

REGION = """
define i32 @monograph_parallel_for(ptr %body, ptr %context, i64 %total, i64 %grain, i64 %threads) {
check:
  %has_grain = icmp sgt i64 %grain, 0
  %has_threads = icmp sgt i64 %threads, 0
  %valid = and i1 %has_grain, %has_threads
  br i1 %valid, label %measure, label %refuse
refuse:
  ret i32 $invalid
measure:
  %empty = icmp sle i64 %total, 0
  br i1 %empty, label %nothing, label %compare
nothing:
  ret i32 0
compare:
  %most = load atomic i64, ptr @most monotonic, align 8
  %allowed = call i64 @llvm.umin.i64(i64 %threads, i64 %most)
  %single = icmp eq i64 %allowed, 1
  %short = icmp ule i64 %total, %grain
  %serial = or i1 %single, %short
  br i1 %serial, label %alone, label %acquire
acquire:
  %exchange = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %owned = extractvalue { i32, i1 } %exchange, 1
  br i1 %owned, label %recruit, label %alone
recruit:
  %last = sub i64 %total, 1
  %further = udiv i64 %last, %grain
  %most_helpers = sub i64 %allowed, 1
  %wanted = call i64 @llvm.umin.i64(i64 %most_helpers, i64 %further)
  %helpers = call i64 @ensure_workers(i64 %wanted)
  %nobody = icmp eq i64 %helpers, 0
  br i1 %nobody, label %give_up, label %share
give_up:
  store atomic i32 0, ptr @busy release, align 4
  br label %alone
share:
  ; At most 64 to 128 chunks a thread: a grain that is too fine costs no more than that.
  %team = add i64 %helpers, 1
  %portions = shl i64 %team, 6
  %grains = udiv i64 %further, %portions
  %grains_a_chunk = call i64 @llvm.umax.i64(i64 %grains, i64 1)
  %step = mul i64 %grains_a_chunk, %grain
  call void @run_region(ptr %body, ptr %context, i64 %total, i64 %step, i64 %helpers)
  store atomic i32 0, ptr @busy release, align 4
  ret i32 0
alone:
  call void %body(ptr %context, i64 0, i64 %total)
  ret i32 0
}

; The owner's side of a region. %step is less than %total.
define internal void @run_region(ptr %body, ptr %context, i64 %total, i64 %step, i64 %helpers) {
open:
  store ptr %body, ptr @region
  store ptr %context, ptr getelementptr (%Region, ptr @region, i64 0, i32 1)
  store i64 %total, ptr getelementptr (%Region, ptr @region, i64 0, i32 2)
  store i64 %step, ptr getelementptr (%Region, ptr @region, i64 0, i32 3)
  %team = add i64 %helpers, 1
  %stretches = call i64 @llvm.umin.i64(i64 %team, i64 $most_stretches)
  %last = sub i64 %total, 1
  %last_chunk = udiv i64 %last, %step
  %shared = udiv i64 %last_chunk, %stretches
  %chunks = add i64 %shared, 1
  %length = mul i64 %chunks, %step
  store i64 %length, ptr getelementptr (%Region, ptr @region, i64 0, i32 4)
  store i64 %stretches, ptr getelementptr (%Region, ptr @region, i64 0, i32 5)
  ; The caller takes the first chunk unasked.
  store atomic i64 %step, ptr @taken monotonic, align 8
  br label %untaken
untaken:
  %stretch = phi i64 [ 1, %open ], [ %following, %untaken ]
  %place = getelementptr %Taken, ptr @taken, i64 %stretch
  store atomic i64 0, ptr %place monotonic, align 8
  %following = add i64 %stretch, 1
  %all = icmp uge i64 %following, %stretches
  br i1 %all, label %admit, label %untaken
admit:
  %shut = load atomic i64, ptr @gate monotonic, align 8
  %newer = add i64 %shut, u0x100000000
  %seats = shl i64 %helpers, 16
  %opened = or i64 %newer, %seats
  ; Sequentially consistent, as are the loads of "sleeps" that follow: see @park.
  store atomic i64 %opened, ptr @gate seq_cst, align 8
  call void @wake_workers(i64 %helpers)
  call void %body(ptr %context, i64 0, i64 %step)
  call void @take_chunks(i64 0)
  %closing = atomicrmw and ptr @gate, i64 u0xFFFFFFFF0000FFFF acquire
  br label %look
look:
  %seen = phi i64 [ %closing, %admit ], [ %again, %wait ]
  %turn = phi i64 [ 0, %admit ], [ %next_turn, %wait ]
  %inside = and i64 %seen, u0xFFFF
  %left = icmp eq i64 %inside, 0
  br i1 %left, label %done, label %stay
stay:
  $pause
  %next_turn = add i64 %turn, 1
  %long = icmp ugt i64 %turn, 4096
  br i1 %long, label %yield, label %wait
yield:
  ; A worker that is inside may be waiting for this very processor.
  %ignored = call i32 @sched_yield()
  br label %wait
wait:
  %again = load atomic i64, ptr @gate acquire, align 8
  br label %look
done:
  ret void
}

; Take chunks until there are none: of one's own stretch, then of those that others left.
define internal void @take_chunks(i64 %own) {
enter:
  %body = load ptr, ptr @region
  %context = load ptr, ptr getelementptr (%Region, ptr @region, i64 0, i32 1)
  %total = load i64, ptr getelementptr (%Region, ptr @region, i64 0, i32 2)
  %step = load i64, ptr getelementptr (%Region, ptr @region, i64 0, i32 3)
  %length = load i64, ptr getelementptr (%Region, ptr @region, i64 0, i32 4)
  %stretches = load i64, ptr getelementptr (%Region, ptr @region, i64 0, i32 5)
  %first = urem i64 %own, %stretches
  br label %visit
visit:
  %stretch = phi i64 [ %first, %enter ], [ %wrapped, %leave ]
  %visited = phi i64 [ 1, %enter ], [ %more, %leave ]
  %begin = mul i64 %stretch, %length
  %some = icmp ult i64 %begin, %total
  br i1 %some, label %measure, label %leave
measure:
  %rest = sub i64 %total, %begin
  %size = call i64 @llvm.umin.i64(i64 %rest, i64 %length)
  %place = getelementptr %Taken, ptr @taken, i64 %stretch
  br label %take
take:
  %offset = atomicrmw add ptr %place, i64 %step monotonic
  %inside = icmp ult i64 %offset, %size
  br i1 %inside, label %run, label %leave
run:
  %left = sub i64 %size, %offset
  %chunk = call i64 @llvm.umin.i64(i64 %left, i64 %step)
  %from = add i64 %begin, %offset
  %to = add i64 %from, %chunk
  call void %body(ptr %context, i64 %from, i64 %to)
  br label %take
leave:
  %next = add i64 %stretch, 1
  %wraps = icmp eq i64 %next, %stretches
  %wrapped = select i1 %wraps, i64 0, i64 %next
  %more = add i64 %visited, 1
  %done = icmp ugt i64 %more, %stretches
  br i1 %done, label %end, label %visit
end:
  ret void
}

; Wake those of the first %count workers that sleep.
define internal void @wake_workers(i64 %count) {
enter:
  br label %next
next:
  %index = phi i64 [ 0, %enter ], [ %following, %step ]
  %finished = icmp eq i64 %index, %count
  br i1 %finished, label %done, label %look
look:
  %worker = getelementptr [$most_workers x %Worker], ptr @workers, i64 0, i64 %index
  %sleeps = load atomic i32, ptr %worker seq_cst, align 4
  %asleep = icmp ne i32 %sleeps, 0
  br i1 %asleep, label %wake, label %step
wake:
  call void @avoid_caller(ptr %worker)
  call void @unpark(ptr %worker)
  br label %step
step:
  %following = add i64 %index, 1
  br label %next
done:
  ret void
}
"""
"""The caller's side: ``monograph_parallel_for`` and what it does."""

SERIAL = """
; No threads on this platform: a region is a call.
define i32 @monograph_parallel_for(ptr %body, ptr %context, i64 %total, i64 %grain, i64 %threads) {
enter:
  %some = icmp sgt i64 %total, 0
  br i1 %some, label %run, label %done
run:
  call void %body(ptr %context, i64 0, i64 %total)
  br label %done
done:
  ret i32 0
}

define void @monograph_pool_configure(i64 %threads, i64 %nanoseconds) {
  ret void
}

define i64 @monograph_pool_start(i64 %threads) {
  ret i64 1
}

define i32 @monograph_pool_stop() {
  ret i32 0
}

define void @monograph_pool_reset() {
  ret void
}
"""
"""All of the pool where there are no threads."""
