package store

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Topics shares the executors of a queue between the topics of its tasks.
//
// A task with a topic that becomes due waits for a *slot*: it is ready, has no ticket, and costs nothing. A call of
// ReleaseBlocked gives slots to tasks, which then get tickets. A task keeps its slot while it has a ticket or runs,
// also after a crash of its worker. When its attempt has ended, or when a gate blocks it, the task gives its slot back.
// A retry needs another slot, unless it is due at once.
//
// While tasks of several topics wait, each topic gets slots by its weight. A topic has at most half of the slots of a
// queue then. A topic that waits alone leaves some slots to others. The number of slots follows the number of executors
// and the rate at which tasks end; see package slots.
//
// Tasks without a topic need no slot.
type Topics interface {
	// TopicProgress returns the parts of a topic in which tasks are open, sorted by queue, and for each queue the
	// highest priority first.
	TopicProgress(ctx context.Context, topic string) (TopicProgress, error)
	// ListTopics returns at most limit parts of topics in which tasks are open, sorted by queue; for each queue the
	// highest priority comes first, and for each priority they are sorted by topic. They come after the part that after
	// names; its zero value means from the beginning. If queue is not empty, all parts are of this queue.
	ListTopics(ctx context.Context, queue string, after TopicPart, limit int) ([]TopicUse, error)
	// TopicOf returns how a ready task waits for a slot. Returns ErrNotFound if the task does not wait for one.
	TopicOf(ctx context.Context, task holdfast.TaskID) (TopicPlace, error)
	// TopicQueues returns the subqueues in which tasks wait for slots, as the latest call of ReleaseBlocked has found
	// them, by queue, and for each the highest priority first.
	TopicQueues(ctx context.Context) ([]TopicQueue, error)
	// SetTopicWeight sets the weight of a topic, from 1 to MaxTopicWeight, in all queues. It adds an entry to the audit
	// log, and returns the weight before. The weight of all other topics is 1.
	SetTopicWeight(ctx context.Context, by Actor, topic string, weight int) (before int, err error)
	// TopicWeights returns at most limit weights that are not 1, by topic, in the order of the topics.
	TopicWeights(ctx context.Context, limit int) ([]TopicWeight, error)
}

// MaxTopicWeight is the highest weight of a topic.
const MaxTopicWeight = 1000

// TopicPart names the tasks of a topic that have the same queue and the same priority.
type TopicPart struct {
	Topic    string            `json:"topic"`
	Queue    string            `json:"queue"`
	Priority holdfast.Priority `json:"priority"`
}

// Cursors say how far the tasks of a topic have come. Ids are given in the order of inserts. A transaction that is
// still open may store a task with a lower id than others that have ended, so no cursor passes an id before the end of
// each transaction that may store a lower one.
type Cursors struct {
	// Scanned is the highest id for which this holds: every task up to it has started at least once, or has ended.
	Scanned holdfast.TaskID `json:"scanned"`
	// Done is the same for tasks that have ended: they are done, dead, cancelled, archived or deleted. If a person
	// retries a task, the cursor goes back to the task before it.
	Done holdfast.TaskID `json:"done"`
}

// TopicUse is the state of a part of a topic.
type TopicUse struct {
	TopicPart
	Cursors
	Weight  int `json:"weight"`
	Waiting int `json:"waiting"` // tasks that wait for a slot; at most MaxCountedBlocked, like the next ones
	Slots   int `json:"slots"`   // tasks that have a slot: they have a ticket, or run
	Later   int `json:"later"`   // tasks that are not due, or that something else blocks
}

// TopicProgress is the state of a topic.
type TopicProgress struct {
	Topic  string `json:"topic"`
	Weight int    `json:"weight"`
	// Cursors are the lowest of all parts. All tasks of the topic with ids up to Done have ended.
	Cursors
	// Stored is the highest id that the cursors can have now: each transaction that may store a lower id has ended. It
	// is the cursor of a part without open tasks.
	Stored holdfast.TaskID `json:"stored"`
	Parts  []TopicUse      `json:"parts"`
}

// TopicPlace is the place of a task that waits for a slot.
type TopicPlace struct {
	TopicPart
	Weight int `json:"weight"`
	Ahead  int `json:"ahead"`  // tasks of the part that wait before this one; at most MaxCountedBlocked
	Slots  int `json:"slots"`  // that the tasks of the topic have in this queue
	Others int `json:"others"` // other topics of the queue in which tasks wait, at most MaxCountedBlocked
	// Executors is the number of executors of the live workers that take the queue.
	Executors int `json:"executors"`
}

// TopicQueue is a subqueue in which tasks wait for slots.
type TopicQueue struct {
	Queue     string
	Priority  holdfast.Priority
	Topics    int // in which tasks wait, at most MaxCountedBlocked
	Executors int // of the live workers that take the queue
}

// TopicWeight is the weight of a topic.
type TopicWeight struct {
	Topic  string `json:"topic"`
	Weight int    `json:"weight"`
}
