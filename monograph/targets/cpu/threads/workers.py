"""The pool's LLVM IR, second half: the workers, how they wait, and how they come and go."""

from __future__ import annotations

WORKER = """
; A worker's life: wait for a region, take chunks, leave, until the pool stops.
define internal ptr @work(ptr %worker) {
enter:
  br label %wait
wait:
  %entered = call i1 @await_region(ptr %worker)
  br i1 %entered, label %share, label %stop
share:
  %index_place = getelementptr %Worker, ptr %worker, i64 0, i32 2
  %index = load i64, ptr %index_place
  %seat = add i64 %index, 1
  call void @take_chunks(i64 %seat)
  %ignored = atomicrmw sub ptr @gate, i64 1 release
  br label %wait
stop:
  ret ptr null
}

; Enter the next region: spin for a while, then sleep. False: the pool stops.
define internal i1 @await_region(ptr %worker) {
enter:
  %spin = load atomic i64, ptr @spin monotonic, align 8
  %begin = call i64 @now()
  br label %try
try:
  %since = phi i64 [ %begin, %enter ], [ %since, %glance ], [ %since, %time ], [ %woken, %sleep ]
  %turn = phi i64 [ 1, %enter ], [ %next_turn, %glance ], [ 1, %time ], [ 1, %sleep ]
  %in = call i1 @try_enter(ptr %worker)
  br i1 %in, label %found, label %idle
found:
  ret i1 true
idle:
  %stopping = load atomic i32, ptr @stopping monotonic, align 4
  %stops = icmp ne i32 %stopping, 0
  br i1 %stops, label %stop, label %glance
stop:
  ret i1 false
glance:
  $pause
  %next_turn = add i64 %turn, 1
  %due = icmp eq i64 %turn, 64
  br i1 %due, label %time, label %try
time:
  %instant = call i64 @now()
  %spent = sub i64 %instant, %since
  %enough = icmp ugt i64 %spent, %spin
  br i1 %enough, label %sleep, label %try
sleep:
  call void @park(ptr %worker)
  %woken = call i64 @now()
  br label %try
}

; Whether a gate is open to a worker that has not been through it.
define internal i1 @is_welcome(ptr %worker, i64 %gate) {
  %index_place = getelementptr %Worker, ptr %worker, i64 0, i32 2
  %index = load i64, ptr %index_place
  %served_place = getelementptr %Worker, ptr %worker, i64 0, i32 5
  %served = load i64, ptr %served_place
  %generation = lshr i64 %gate, 32
  %fresh = icmp ne i64 %generation, %served
  %shifted = lshr i64 %gate, 16
  %seats = and i64 %shifted, u0xFFFF
  %seated = icmp ult i64 %index, %seats
  %welcome = and i1 %fresh, %seated
  ret i1 %welcome
}

define internal i1 @try_enter(ptr %worker) {
look:
  %gate = load atomic i64, ptr @gate monotonic, align 8
  %welcome = call i1 @is_welcome(ptr %worker, i64 %gate)
  br i1 %welcome, label %step_in, label %stay_out
step_in:
  %more = add i64 %gate, 1
  %exchange = cmpxchg ptr @gate, i64 %gate, i64 %more acquire monotonic
  %entered = extractvalue { i64, i1 } %exchange, 1
  br i1 %entered, label %remember, label %stay_out
remember:
  %generation = lshr i64 %gate, 32
  %served_place = getelementptr %Worker, ptr %worker, i64 0, i32 5
  store i64 %generation, ptr %served_place
  ret i1 true
stay_out:
  ret i1 false
}

; Sleep until woken. The worker says that it sleeps and then looks at the gate once more; the caller
; opens the gate and then looks who sleeps. All four are sequentially consistent, so one of the two
; sees the other, and no opening is slept through.
define internal void @park(ptr %worker) {
announce:
  store atomic i32 1, ptr %worker seq_cst, align 4
  %gate = load atomic i64, ptr @gate seq_cst, align 8
  %welcome = call i1 @is_welcome(ptr %worker, i64 %gate)
  %stopping = load atomic i32, ptr @stopping seq_cst, align 4
  %stops = icmp ne i32 %stopping, 0
  %needed = or i1 %welcome, %stops
  br i1 %needed, label %back, label %sleep
back:
  store atomic i32 0, ptr %worker seq_cst, align 4
  ret void
sleep:
  call void @sleep_while_parked(ptr %worker)
  ret void
}

; Nanoseconds of a clock that only goes forward.
define internal i64 @now() {
  %time = alloca { i64, i64 }
  store { i64, i64 } zeroinitializer, ptr %time
  %ignored = call i32 @clock_gettime(i32 $clock, ptr %time)
  %seconds = load i64, ptr %time
  %rest_place = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %rest = load i64, ptr %rest_place
  %scaled = mul i64 %seconds, 1000000000
  %sum = add i64 %scaled, %rest
  ret i64 %sum
}
"""
"""A worker waits for a region, takes part and waits again."""

FUTEX_PARKING = """
declare i64 @syscall(i64, ...)

; FUTEX_WAIT_PRIVATE is 128, FUTEX_WAKE_PRIVATE 129. The wait returns at once unless the word is
; still 1, and may return for no reason.
define internal void @sleep_while_parked(ptr %worker) {
enter:
  br label %look
look:
  %sleeps = load atomic i32, ptr %worker acquire, align 4
  %asleep = icmp ne i32 %sleeps, 0
  br i1 %asleep, label %wait, label %done
wait:
  %ignored = call i64 (i64, ...) @syscall(
      i64 $futex, ptr %worker, i64 128, i64 1, ptr null, ptr null, i64 0)
  br label %look
done:
  ret void
}

define internal void @unpark(ptr %worker) {
  store atomic i32 0, ptr %worker release, align 4
  %ignored = call i64 (i64, ...) @syscall(
      i64 $futex, ptr %worker, i64 129, i64 1, ptr null, ptr null, i64 0)
  ret void
}

define internal void @prepare_parking(ptr %worker) {
  ret void
}
"""
"""Sleeping and waking by Linux's futex."""

CONDITION_PARKING = """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)

define internal void @sleep_while_parked(ptr %worker) {
enter:
  %mutex = getelementptr %Worker, ptr %worker, i64 0, i32 7
  %condition = getelementptr %Worker, ptr %worker, i64 0, i32 8
  call i32 @pthread_mutex_lock(ptr %mutex)
  br label %look
look:
  %sleeps = load atomic i32, ptr %worker acquire, align 4
  %asleep = icmp ne i32 %sleeps, 0
  br i1 %asleep, label %wait, label %done
wait:
  call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %look
done:
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define internal void @unpark(ptr %worker) {
  %mutex = getelementptr %Worker, ptr %worker, i64 0, i32 7
  %condition = getelementptr %Worker, ptr %worker, i64 0, i32 8
  call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i32 0, ptr %worker release, align 4
  call i32 @pthread_cond_signal(ptr %condition)
  call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define internal void @prepare_parking(ptr %worker) {
  %mutex = getelementptr %Worker, ptr %worker, i64 0, i32 7
  %condition = getelementptr %Worker, ptr %worker, i64 0, i32 8
  call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}
"""
"""Sleeping and waking by POSIX condition variables."""

AFFINITY = """
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i64 @llvm.vector.reduce.or.v16i64(<16 x i64>)

; Keep a worker off the processor that the caller runs on. The system likes to wake a thread where
; its waker runs, and the two would then take turns. The worker is free to run on every other
; processor of the caller's mask; the caller itself is never bound. The mask holds 1024 processors.
define internal void @avoid_caller(ptr %worker) {
ask:
  %processor = call i32 @sched_getcpu()
  %avoided_place = getelementptr %Worker, ptr %worker, i64 0, i32 1
  %avoided = load i32, ptr %avoided_place
  %same = icmp eq i32 %processor, %avoided
  %strange = icmp ugt i32 %processor, 1023
  %skip = or i1 %same, %strange
  br i1 %skip, label %done, label %read
read:
  %mask = alloca <16 x i64>, align 128
  store <16 x i64> zeroinitializer, ptr %mask
  %length = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %failed = icmp slt i32 %length, 0
  br i1 %failed, label %done, label %clear
clear:
  %wide = zext i32 %processor to i64
  %word = lshr i64 %wide, 6
  %bit = and i64 %wide, 63
  %place = getelementptr i64, ptr %mask, i64 %word
  %before = load i64, ptr %place
  %flag = shl i64 1, %bit
  %others = xor i64 %flag, -1
  %after = and i64 %before, %others
  store i64 %after, ptr %place
  %words = load <16 x i64>, ptr %mask
  %any = call i64 @llvm.vector.reduce.or.v16i64(<16 x i64> %words)
  %lonely = icmp eq i64 %any, 0
  br i1 %lonely, label %done, label %bind
bind:
  %thread_place = getelementptr %Worker, ptr %worker, i64 0, i32 3
  %thread = load i64, ptr %thread_place
  %ignored = call i32 @pthread_setaffinity_np(i64 %thread, i64 128, ptr %mask)
  store i32 %processor, ptr %avoided_place
  br label %done
done:
  ret void
}
"""
"""Keeping workers off the caller's processor, on Linux."""

NO_AFFINITY = """
define internal void @avoid_caller(ptr %worker) {
  ret void
}
"""
"""Where a thread cannot be kept off a processor."""

LIFE = """
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sigdelset(ptr, i32)

; Have %wanted workers if the system gives them; how many of these there are. For the owner.
define internal i64 @ensure_workers(i64 %wanted) {
enter:
  %started = load i64, ptr @started
  %enough = icmp uge i64 %started, %wanted
  br i1 %enough, label %have, label %create
have:
  ret i64 %wanted
create:
  %count = call i64 @create_workers(i64 %started, i64 %wanted)
  ret i64 %count
}

; Workers take no signals: those are for the program's own threads. Faults still reach the thread
; that commits them.
define internal i64 @create_workers(i64 %first, i64 %wanted) {
enter:
  %blocked = alloca [128 x i8], align 16
  %usual = alloca [128 x i8], align 16
  call i32 @sigfillset(ptr %blocked)
$keep_faults
  call i32 @pthread_sigmask(i32 $set_signal_mask, ptr %blocked, ptr %usual)
  br label %next
next:
  %index = phi i64 [ %first, %enter ], [ %following, %created ]
  %finished = icmp eq i64 %index, %wanted
  br i1 %finished, label %done, label %create
create:
  %worker = getelementptr [$most_workers x %Worker], ptr @workers, i64 0, i64 %index
  %problem = call i32 @create_worker(ptr %worker, i64 %index)
  %fine = icmp eq i32 %problem, 0
  br i1 %fine, label %created, label %refused
created:
  %following = add i64 %index, 1
  br label %next
refused:
  ; No more threads to be had: do not ask again in every region.
  %caller_too = add i64 %index, 1
  store atomic i64 %caller_too, ptr @most monotonic, align 8
  br label %done
done:
  store atomic i64 %index, ptr @started monotonic, align 8
  call i32 @pthread_sigmask(i32 $set_signal_mask, ptr %usual, ptr null)
  ret i64 %index
}

define internal i32 @create_worker(ptr %worker, i64 %index) {
enter:
  store atomic i32 0, ptr %worker monotonic, align 4
  %avoided_place = getelementptr %Worker, ptr %worker, i64 0, i32 1
  store i32 -1, ptr %avoided_place
  %index_place = getelementptr %Worker, ptr %worker, i64 0, i32 2
  store i64 %index, ptr %index_place
  %gate = load atomic i64, ptr @gate monotonic, align 8
  %generation = lshr i64 %gate, 32
  %served_place = getelementptr %Worker, ptr %worker, i64 0, i32 5
  store i64 %generation, ptr %served_place
  call void @prepare_parking(ptr %worker)
  %thread_place = getelementptr %Worker, ptr %worker, i64 0, i32 3
  %problem = call i32 @pthread_create(ptr %thread_place, ptr null, ptr @work, ptr %worker)
  %fine = icmp eq i32 %problem, 0
  br i1 %fine, label %place, label %done
place:
  call void @avoid_caller(ptr %worker)
  br label %done
done:
  ret i32 %problem
}

define void @monograph_pool_configure(i64 %threads, i64 %nanoseconds) {
  store atomic i64 %threads, ptr @most monotonic, align 8
  store atomic i64 %nanoseconds, ptr @spin monotonic, align 8
  ret void
}

define i64 @monograph_pool_start(i64 %threads) {
enter:
  %exchange = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %owned = extractvalue { i32, i1 } %exchange, 1
  br i1 %owned, label %start, label %count
start:
  %most = load atomic i64, ptr @most monotonic, align 8
  %positive = call i64 @llvm.smax.i64(i64 %threads, i64 1)
  %allowed = call i64 @llvm.umin.i64(i64 %positive, i64 %most)
  %wanted = sub i64 %allowed, 1
  %ignored = call i64 @ensure_workers(i64 %wanted)
  store atomic i32 0, ptr @busy release, align 4
  br label %count
count:
  %started = load atomic i64, ptr @started monotonic, align 8
  %team = add i64 %started, 1
  ret i64 %team
}

define i32 @monograph_pool_stop() {
enter:
  %exchange = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %owned = extractvalue { i32, i1 } %exchange, 1
  br i1 %owned, label %tell, label %refuse
refuse:
  ret i32 1
tell:
  %started = load i64, ptr @started
  store atomic i32 1, ptr @stopping seq_cst, align 4
  call void @wake_workers(i64 %started)
  br label %next
next:
  %index = phi i64 [ 0, %tell ], [ %following, %join ]
  %finished = icmp eq i64 %index, %started
  br i1 %finished, label %done, label %join
join:
  %thread_place = getelementptr [$most_workers x %Worker], ptr @workers, i64 0, i64 %index, i32 3
  %thread = load i64, ptr %thread_place
  call i32 @pthread_join(i64 %thread, ptr null)
  %following = add i64 %index, 1
  br label %next
done:
  store atomic i64 0, ptr @started monotonic, align 8
  store atomic i32 0, ptr @stopping monotonic, align 4
  store atomic i32 0, ptr @busy release, align 4
  ret i32 0
}

define void @monograph_pool_reset() {
  %shut = atomicrmw and ptr @gate, i64 u0xFFFFFFFF00000000 monotonic
  store atomic i64 0, ptr @started monotonic, align 8
  store atomic i32 0, ptr @stopping monotonic, align 4
  store atomic i32 0, ptr @busy release, align 4
  ret void
}
"""
"""Creating workers, ending them, and forgetting them after a fork."""
