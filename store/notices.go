package store

import (
	"cmp"
	"time"

	"github.com/holdfastq/holdfast"
)

// NoticeFilter selects events.
type NoticeFilter struct {
	Kinds []NoticeKind
	// ExceptQueue is the queue of the tasks that announce events. Deaths in it are ignored, and so are operations only
	// on its tasks.
	ExceptQueue string
	// MinTasks is the minimum number of tasks of a group that have died since the group was resolved; less than 1 means
	// 1.
	MinTasks int
	After    string // the Announced.Next of the previous call
	Limit    int    // maximum number of groups, and of operations
	// Late are the queues whose oldest due task is too old. A queue is announced when it becomes late, and not again
	// until a call has had its name in Well. The caller decides both lists, so that it can leave a gap between them.
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

// Notice is an event. Its kind determines which of Group, Operation and Queue is set.
type Notice struct {
	Kind NoticeKind
	At   time.Time // time of the last death, of the stop, or of the call that announces the queue
	// Group.Tasks is the number of tasks that died since the group was resolved, at most NoticeMaxTasks. LastHour is 0.
	Group     DeathGroup
	Operation Operation // its present state: a person may have resumed it
	Queue     LateQueue
}

// CompareNotices orders notices of groups: the largest group first.
func CompareNotices(a, b Notice) int {
	return cmp.Or(cmp.Compare(b.Group.Tasks, a.Group.Tasks), cmp.Compare(a.Group.Fingerprint, b.Group.Fingerprint))
}

// NoticeMaxTasks is the maximum number of tasks that a notice counts. Counting more would take too long.
const NoticeMaxTasks = 10_000

// Announced is the result of Announce.
type Announced struct {
	Notices []Notice // empty if there was no event
	Task    holdfast.TaskID
	// Next is empty if the call has read all groups. Otherwise the next call continues there.
	Next string
}

// NoticeForgetAfter is how long the store keeps a group without dead tasks that no person has changed. The group was
// announced, or a person has changed one of its tasks.
const NoticeForgetAfter = 30 * 24 * time.Hour
