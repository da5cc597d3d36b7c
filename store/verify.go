package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// TicketCount counts ready tasks of a queue.
type TicketCount struct {
	Queue    string
	Ticketed int64 // with a ticket, or in an outbox entry
	Due      int64 // due and without a ticket
}

// Verification finds tasks that break an invariant of the design. It changes no task. Janitors and people use it.
//
// A check has parts. Each part is a sequence of short steps, and the caller may stop between two of them. Only
// VerifyAll reads all tasks. The other parts read an index, or the tasks that may have a ticket.
type Verification interface {
	// VerifyStep makes one step of a part. The step begins with the first id greater than after; the first step of a
	// part has an after of 0.
	VerifyStep(ctx context.Context, part VerifyPart, after holdfast.TaskID, limits VerifyLimits) (VerifyStep, error)
	// Suspicious reports whether a worker has ended or lost its lease more than limits.Orphan ago and may still own
	// tasks. Then VerifyAll should run to its end at once.
	Suspicious(ctx context.Context, limits VerifyLimits) (bool, error)
	// CountTickets makes one step, and counts its ready tasks by queue. The step begins with the first id greater than
	// after. next is the argument after of the next step, or 0 at the end.
	CountTickets(ctx context.Context, after holdfast.TaskID) (counts []TicketCount, next holdfast.TaskID, err error)
	// VerifyResults returns the newest result of each part whose check has begun. All processes share them. A result is
	// Incomplete if no check of the part has ever been complete.
	VerifyResults(ctx context.Context) ([]VerifyResult, error)
	// StoreVerifyResult replaces the result of v.Part. If v.Incomplete is set, it only stores v.Resume.
	StoreVerifyResult(ctx context.Context, v VerifyResult) error
}

// VerifyPart is a part of a check.
type VerifyPart string

// The parts of a check.
const (
	VerifyTickets VerifyPart = "tickets" // tasks with a ticket
	VerifyDue     VerifyPart = "due"     // tasks that have been due for some time and have no ticket
	VerifyOutbox  VerifyPart = "outbox"  // outbox entries
	VerifyAll     VerifyPart = "all"     // all tasks
)

// VerifyParts returns every part, in the order of a check.
func VerifyParts() []VerifyPart {
	return []VerifyPart{VerifyTickets, VerifyDue, VerifyOutbox, VerifyAll}
}

// VerifyLimits has the times after which a state is a fault. Janitors need some time to repair the effects of a crash.
type VerifyLimits struct {
	Slack   time.Duration // see Repair.UnticketLost
	Overdue time.Duration // how long a due task may wait for a worker that has been idle for that time
	Orphan  time.Duration // how long a task may be running after its worker has ended
	// Counted lets VerifyAll skip each block of ids in which all tasks have ended according to Counters. If a person
	// changes the state of such a task in the database, VerifyAll finds it only after the next Recount of the block.
	Counted bool
}

// VerifyStep is the result of a step.
type VerifyStep struct {
	Findings []Finding
	Next     holdfast.TaskID // id after which the next step begins; 0 at the end of the part
}

// Finding is a task that breaks an invariant.
type Finding struct {
	Code FaultCode
	Task holdfast.TaskID
}

// FaultCode identifies an invariant. See Faults.
type FaultCode string

// FaultKind is a kind of fault.
type FaultKind string

// The kinds of faults.
const (
	Lost       FaultKind = "lost"       // no record leads a worker to the task
	Duplicated FaultKind = "duplicated" // the same attempt exists twice
	Zombie     FaultKind = "zombie"     // the task is running and no worker runs it
	Overdue    FaultKind = "overdue"    // the task waits although a worker is idle
)

// Fault describes an invariant and the effect of a task that breaks it.
type Fault struct {
	Code        FaultCode
	Kind        FaultKind
	Part        VerifyPart // the part that finds it
	Description string
	Remedy      holdfast.Hint
}

// The codes of faults.
const (
	LostTicket        FaultCode = "lost_ticket"
	LostRecord        FaultCode = "lost_record"
	DuplicatedEntry   FaultCode = "duplicated_entry"
	DuplicatedAttempt FaultCode = "duplicated_attempt"
	ZombieEnded       FaultCode = "zombie_ended"
	ZombieExpired     FaultCode = "zombie_expired"
	ZombieMissing     FaultCode = "zombie_missing"
	OverdueTicket     FaultCode = "overdue_ticket"
	OverdueDispatch   FaultCode = "overdue_dispatch"
	OverduePostponed  FaultCode = "overdue_postponed"
)

// Faults returns every fault. The invariants are:
//
//   - A ready task is due, or has a ticket, or is in an outbox entry. Two sentinels prove that a ticket is lost; see
//     UnticketLost. While a live worker is full, they prove nothing.
//   - At most one outbox entry contains a task. An attempt whose end is recorded does not run again.
//   - A task that is running belongs to a live worker. After the end of the worker, a janitor takes the task back within
//     VerifyLimits.Orphan.
//   - A due task starts within VerifyLimits.Overdue if a live worker with its type and queue has free executors. A
//     ticket in the main queue may wait longer, until a sentinel that was sent after it has left the queue.
//
// Two workers cannot own a task, because its row names only one.
func Faults() []Fault {
	recovery, serve := holdfast.Hint{Kind: holdfast.HintRecover}, holdfast.Hint{Kind: holdfast.HintServeJanitor}
	return []Fault{
		{LostTicket, Lost, VerifyTickets, "the task counts as ticketed, but sentinels prove that its ticket is in no queue", recovery},
		{LostRecord, Lost, VerifyAll, "the task is ready, but is not due and has no ticket", recovery},
		{DuplicatedEntry, Duplicated, VerifyOutbox, "several outbox entries contain the task", recovery},
		{DuplicatedAttempt, Duplicated, VerifyAll, "the end of the task's attempt is recorded, but the attempt may run again",
			holdfast.Hint{Kind: holdfast.HintNewAttempt}},
		{ZombieEnded, Zombie, VerifyAll, "the task is running under a worker that has ended", recovery},
		{ZombieExpired, Zombie, VerifyAll, "the task is running under a worker whose lease has expired", serve},
		{ZombieMissing, Zombie, VerifyAll, "the task is running under a worker that does not exist", recovery},
		{OverdueTicket, Overdue, VerifyTickets, "the task is due and its ticket has left the queue, but an idle worker did not get it", recovery},
		{OverdueDispatch, Overdue, VerifyDue, "the task is due and a worker is idle, but no janitor has published a ticket", serve},
		{OverduePostponed, Overdue, VerifyAll, "the task is due and a worker is idle, but its ticket is to be published much later",
			holdfast.Hint{Kind: holdfast.HintNewAttempt}},
	}
}

// FaultOf returns the description of a code. It returns false if this build does not know the code.
func FaultOf(code FaultCode) (Fault, bool) {
	for _, fault := range Faults() {
		if fault.Code == code {
			return fault, true
		}
	}
	return Fault{}, false
}

// VerifyResult is the result of one part of a check.
type VerifyResult struct {
	Part   VerifyPart
	Counts []FaultCount
	// Age is the time since the part was checked. VerifyResults sets it, and StoreVerifyResult ignores it.
	Age time.Duration
	// Resume is where the next check of the part continues.
	Resume     holdfast.TaskID
	Incomplete bool // the check has not reached the end of the part
}

// FaultCount is the number of tasks with a fault.
type FaultCount struct {
	Code    FaultCode
	Tasks   int
	Samples []holdfast.TaskID // some of the tasks, in the order of their ids
}
