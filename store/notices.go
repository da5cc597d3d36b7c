package store

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Notices finds the events that people must know, and remembers which of them were announced.
type Notices interface {
	// Announce finds events that were not announced, calls compose with at most f.Limit of them, and stores the task
	// that compose returns, which tells somebody. One transaction stores the task and remembers the events, so each
	// event is in one task, also if several processes call Announce at once. Without events it calls and stores nothing.
	// Announce may call compose again after a conflict. The task is due at once.
	//
	// The first call ever remembers its time. Only deaths and stops of operations after that time count, so that the events
	// of the past are not announced all at once.
	Announce(ctx context.Context, f NoticeFilter, compose func([]Notice) (holdfast.NewTask, error)) (Announced, error)
}

// NoticeFilter selects events.
type NoticeFilter struct {
	Kinds []NoticeKind
	// ExceptQueue is the queue of the tasks that announce events. Deaths in it do not count, and neither do operations on
	// its tasks only.
	ExceptQueue string
	// MinTasks is how many tasks of a group must have died since the group was resolved; less than 1 means 1.
	MinTasks int
	After    string // the Announced.Next of the call before
	Limit    int    // at most this many groups, and as many operations
	// Late are the queues whose oldest due task is too old. A queue is announced when it becomes late, and not again
	// until a call has had its name in Well. The caller decides, so that it can leave a gap between late and well.
	Late []LateQueue
	Well []string
}

// LateQueue is a queue whose oldest due task is too old.
type LateQueue struct {
	Name      string
	OldestDue time.Duration // how long its oldest due task has been due
}

// NoticeKind is a kind of event.
type NoticeKind string

// The kinds of events.
const (
	NoticeGroupAppeared    NoticeKind = "group_appeared"    // the first task with a fingerprint died
	NoticeGroupReturned    NoticeKind = "group_returned"    // the first task of a resolved group died again
	NoticeOperationStopped NoticeKind = "operation_stopped" // an operation stopped by itself
	NoticeQueueLate        NoticeKind = "queue_late"        // the oldest due task of a queue became too old
)

// NoticeKinds returns the kinds that Announce finds.
func NoticeKinds() []NoticeKind {
	return []NoticeKind{NoticeGroupAppeared, NoticeGroupReturned, NoticeOperationStopped, NoticeQueueLate}
}

// Notice is an event. The kind says which of Group, Operation and Queue is set.
type Notice struct {
	Kind NoticeKind
	At   time.Time // of the last death of the group, of the stop of the operation, or of the call that announces the queue
	// Group has in Tasks those that died since the group was resolved, at most NoticeMaxTasks. LastHour is 0.
	Group     DeathGroup
	Operation Operation // as it is now: a person may have resumed it
	Queue     LateQueue
}

// CompareNotices orders notices of groups: the largest group first.
func CompareNotices(a, b Notice) int {
	return cmp.Or(cmp.Compare(b.Group.Tasks, a.Group.Tasks), cmp.Compare(a.Group.Fingerprint, b.Group.Fingerprint))
}

// NoticeMaxTasks is the highest number of tasks that a notice counts. Counting more would take too long.
const NoticeMaxTasks = 10_000

// Announced is the result of Announce.
type Announced struct {
	Notices []Notice // empty if nothing happened
	Task    holdfast.TaskID
	// Next is empty if the call has looked at all groups. Otherwise the next call continues there.
	Next string
}

// NoticeForgetAfter is how long the store remembers a group that was announced, or whose tasks a person has changed, if
// no person has changed the group itself and no task of it is dead.
const NoticeForgetAfter = 30 * 24 * time.Hour
