package store

import (
	"context"

	"github.com/holdfastq/holdfast"
)

// Topics shares the executors of a queue between the topics of its tasks.
//
// A task with a topic that becomes due waits for a *slot*: it is ready, has no ticket, and costs nothing. A call of
// ReleaseBlocked gives slots to tasks, which then get tickets. A task keeps its slot while it has a ticket or runs,
// even after a crash of its worker. When its attempt has ended, or when a gate blocks it, the task gives its slot back.
// A retry needs another slot, unless it is due at once.
//
// While tasks of several topics wait, each topic gets slots by its weight. A topic has at most half of the slots of a
// queue then. A topic that waits alone leaves some slots to others. The number of slots follows the number of executors
// and the rate at which tasks end; see package slots.
//
// Tasks without a topic need no slot.
type Topics interface {
	// TopicProgress returns the parts of a topic with open tasks, sorted by queue and then by priority, the highest
	// first.
	TopicProgress(ctx context.Context, topic string) (TopicProgress, error)
	// ListTopics returns at most limit parts of topics with open tasks, sorted by queue, then by priority (the highest
	// first), then by topic. It begins after the part that after names, or at the first part if after is zero. If queue
	// is not empty, it returns only parts of this queue.
	ListTopics(ctx context.Context, queue string, after TopicPart, limit int) ([]TopicUse, error)
	// TopicOf returns how a ready task waits for a slot. It returns ErrNotFound if the task does not wait for one.
	TopicOf(ctx context.Context, task holdfast.TaskID) (TopicPlace, error)
	// TopicQueues returns the subqueues in which tasks wait for slots, as the latest call of ReleaseBlocked found them.
	// They are sorted by queue and then by priority, the highest first.
	TopicQueues(ctx context.Context) ([]TopicQueue, error)
	// SetTopicWeight sets the weight of a topic, from 1 to MaxTopicWeight, in all queues. It adds an audit entry, and
	// returns the weight before. Every topic without a set weight has the weight 1.
	SetTopicWeight(ctx context.Context, by Actor, topic string, weight int) (before int, err error)
	// TopicWeights returns at most limit topics with a weight other than 1, sorted by topic.
	TopicWeights(ctx context.Context, limit int) ([]TopicWeight, error)
}

// MaxTopicWeight is the highest weight of a topic.
const MaxTopicWeight = 1000

// TopicPart identifies the tasks of a topic with the same queue and the same priority.
type TopicPart struct {
	Topic    string            `json:"topic"`
	Queue    string            `json:"queue"`
	Priority holdfast.Priority `json:"priority"`
}

// Cursors are the progress of a topic. Tasks get ids in the order of inserts, but an open transaction may still store a
// task with a lower id. So no cursor passes an id before every transaction has ended that may store a lower one.
type Cursors struct {
	// Scanned is the highest id up to which every task has started at least once, or has ended.
	Scanned holdfast.TaskID `json:"scanned"`
	// Done is the highest id up to which every task has ended: it is done, dead, cancelled, archived or deleted. If a
	// person retries a task, the cursor returns to the task before it.
	Done holdfast.TaskID `json:"done"`
}

// TopicUse is the state of a part of a topic.
type TopicUse struct {
	TopicPart
	Cursors
	Weight  int `json:"weight"`
	Waiting int `json:"waiting"` // tasks that wait for a slot; at most MaxCountedBlocked, like the next two
	Slots   int `json:"slots"`   // tasks that have a slot: they have a ticket, or run
	Later   int `json:"later"`   // tasks that are not due, or are blocked for another reason
}

// TopicProgress is the state of a topic.
type TopicProgress struct {
	Topic  string `json:"topic"`
	Weight int    `json:"weight"`
	// Cursors are the lowest cursors of all parts. All tasks of the topic with ids up to Done have ended.
	Cursors
	// Stored is the highest id that the cursors can have now: every transaction has ended that may store a lower id. A
	// part without open tasks has this cursor.
	Stored holdfast.TaskID `json:"stored"`
	Parts  []TopicUse      `json:"parts"`
}

// TopicPlace is the place of a task that waits for a slot.
type TopicPlace struct {
	TopicPart
	Weight int `json:"weight"`
	Ahead  int `json:"ahead"`  // tasks of the part that wait ahead of this task; at most MaxCountedBlocked
	Slots  int `json:"slots"`  // slots that tasks of the topic have in this queue
	Others int `json:"others"` // other topics of the queue with waiting tasks, at most MaxCountedBlocked
	// Executors is the number of executors of the live workers that take the queue.
	Executors int `json:"executors"`
}

// TopicQueue is a subqueue in which tasks wait for slots.
type TopicQueue struct {
	Queue     string
	Priority  holdfast.Priority
	Topics    int // topics with waiting tasks, at most MaxCountedBlocked
	Executors int // executors of the live workers that take the queue
}

// TopicWeight is the weight of a topic.
type TopicWeight struct {
	Topic  string `json:"topic"`
	Weight int    `json:"weight"`
}
