package flow

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slots"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

// Phase is what a store knows about an open task with a topic; see the table topic_tasks.
type Phase int

// The phases. If a process changes a task without its phase, a later pass corrects the phase.
const (
	Waits      Phase = iota // waits for a slot and has never started
	WaitsAgain              // waits for a slot and has started before
	HasSlot                 // has a ticket, or runs
	Later                   // is not due or is otherwise blocked, and has never started
	LaterAgain              // is not due or is otherwise blocked, and has started before
)

// Topics implements store.Topics and, for slots, a part of store.Gates.ReleaseBlocked.
type Topics struct {
	transactions transact.Transactions
	self         string // identity of this process among those that give slots

	mu       sync.Mutex
	rates    map[string]*slots.Rates // by queue
	lookedAt time.Time
	sweptAt  time.Time
	swept    holdfast.TaskID  // the last task of the previous sweep step
	past     map[part]float64 // next turns of the topics whose last waiting tasks got slots
}

// part is a topic in a subqueue.
type part struct{ subqueue, topic string }

func newTopics(t transact.Transactions) *Topics {
	return &Topics{transactions: t, self: strconv.FormatUint(rand.Uint64(), 36), rates: make(map[string]*slots.Rates), past: make(map[part]float64)}
}

// topicUseRow is a part of a topic. Open is the lowest open task, and Fresh the lowest task that has not started; 0
// means that there is none.
type topicUseRow struct {
	Queue, Topic          string
	Open, Fresh, Stored   holdfast.TaskID
	Waiting, Slots, Later int
	Weight                int
}

func (r *topicUseRow) value(topic string) store.TopicUse {
	queue, priority := holdfast.SplitSubqueue(r.Queue)
	return store.TopicUse{
		TopicPart: store.TopicPart{Topic: topic, Queue: queue, Priority: priority},
		Cursors:   store.Cursors{Scanned: before(r.Fresh, r.Stored), Done: before(r.Open, r.Stored)},
		Weight:    r.Weight, Waiting: r.Waiting, Slots: r.Slots, Later: r.Later,
	}
}

// before returns a cursor: the last id before the task first, or stored if first is 0. It is at most stored.
func before(first, stored holdfast.TaskID) holdfast.TaskID {
	if first == 0 {
		return stored
	}
	return min(first-1, stored)
}

// subqueues returns the names of the subqueues of a queue, or of all queues if queue is "". They have the order of
// lists.
func (t *Topics) subqueues(ctx context.Context, operation, queue string) ([]string, error) {
	var rows []struct{ Name string }
	if err := t.transactions.Read(ctx, operation, "queue_names", &rows); err != nil {
		return nil, err
	}
	var names []string
	for _, row := range rows {
		if name, _ := holdfast.SplitSubqueue(row.Name); queue == "" || name == queue {
			names = append(names, row.Name)
		}
	}
	slices.SortFunc(names, compareSubqueues)
	return names, nil
}

// compareSubqueues sorts subqueues by queue, the highest priority first.
func compareSubqueues(a, b string) int {
	aQueue, aPriority := holdfast.SplitSubqueue(a)
	bQueue, bPriority := holdfast.SplitSubqueue(b)
	return cmp.Or(cmp.Compare(aQueue, bQueue), cmp.Compare(bPriority, aPriority))
}

// TopicProgress implements store.Topics.
func (t *Topics) TopicProgress(ctx context.Context, topic string) (store.TopicProgress, error) {
	const operation = "read the progress of a topic"
	progress := store.TopicProgress{Topic: topic, Weight: 1, Parts: []store.TopicUse{}}
	names, err := t.subqueues(ctx, operation, "")
	if err != nil {
		return progress, err
	}
	// The bound is read first, so that it is valid for all rows that are read later.
	var stored []struct{ ID holdfast.TaskID }
	if err := t.transactions.Read(ctx, operation, "topic_stored", &stored); err != nil {
		return progress, err
	}
	var weights []struct{ Weight int }
	if err := t.transactions.Read(ctx, operation, "topic_weight", &weights, topic); err != nil {
		return progress, err
	}
	var rows []topicUseRow
	if err := t.transactions.Read(ctx, operation, "topic_parts", &rows, topic, names); err != nil {
		return progress, err
	}
	slices.SortFunc(rows, func(a, b topicUseRow) int { return compareSubqueues(a.Queue, b.Queue) })
	progress.Stored, progress.Weight = stored[0].ID, weights[0].Weight
	progress.Cursors = store.Cursors{Scanned: progress.Stored, Done: progress.Stored}
	for i := range rows {
		part := rows[i].value(topic)
		progress.Scanned, progress.Done = min(progress.Scanned, part.Scanned), min(progress.Done, part.Done)
		progress.Parts = append(progress.Parts, part)
	}
	return progress, nil
}

// ListTopics implements store.Topics.
func (t *Topics) ListTopics(ctx context.Context, queue string, after store.TopicPart, limit int) ([]store.TopicUse, error) {
	const operation = "list topics"
	names, err := t.subqueues(ctx, operation, queue)
	if err != nil {
		return nil, err
	}
	from, topic := "", after.Topic
	if after.Queue != "" {
		from = holdfast.Subqueue(after.Queue, after.Priority)
	}
	list := []store.TopicUse{}
	for _, name := range names {
		switch order := compareSubqueues(name, from); {
		case from != "" && order < 0:
			continue
		case from == "" || order > 0:
			topic = ""
		}
		var rows []topicUseRow
		if err := t.transactions.Read(ctx, operation, "topic_list", &rows, name, topic, limit-len(list)); err != nil {
			return nil, err
		}
		slices.SortFunc(rows, func(a, b topicUseRow) int { return cmp.Compare(a.Topic, b.Topic) })
		for i := range rows {
			list = append(list, rows[i].value(rows[i].Topic))
		}
		if len(list) >= limit {
			break
		}
	}
	return list, nil
}

// TopicQueues implements store.Topics.
func (t *Topics) TopicQueues(ctx context.Context) ([]store.TopicQueue, error) {
	const operation = "list queues in which tasks wait for slots"
	var rows []struct {
		Queue  string
		Topics int
	}
	if err := t.transactions.Read(ctx, operation, "topic_waiting", &rows); err != nil || len(rows) == 0 {
		return nil, err
	}
	executors, err := executorsOf(ctx, transact.Alone(t.transactions, operation))
	if err != nil {
		return nil, err
	}
	list := make([]store.TopicQueue, len(rows))
	for i, row := range rows {
		queue, priority := holdfast.SplitSubqueue(row.Queue)
		list[i] = store.TopicQueue{Queue: queue, Priority: priority, Topics: row.Topics, Executors: executors(queue)}
	}
	slices.SortFunc(list, func(a, b store.TopicQueue) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(b.Priority, a.Priority))
	})
	return list, nil
}

// TopicOf implements store.Topics.
func (t *Topics) TopicOf(ctx context.Context, task holdfast.TaskID) (store.TopicPlace, error) {
	const operation = "read the place of a task in its topic"
	missing := fmt.Errorf("%w: task %s does not wait for a slot of a topic", holdfast.ErrNotFound, task)
	row, err := transact.FirstOf[struct {
		Queue, Topic                 string
		Weight, Ahead, Slots, Others int
	}](ctx, transact.Alone(t.transactions, operation), missing, "topic_of", task)
	if err != nil {
		return store.TopicPlace{}, err
	}
	queue, priority := holdfast.SplitSubqueue(row.Queue)
	executors, err := executorsOf(ctx, transact.Alone(t.transactions, operation))
	if err != nil {
		return store.TopicPlace{}, err
	}
	return store.TopicPlace{
		TopicPart: store.TopicPart{Topic: row.Topic, Queue: queue, Priority: priority}, Weight: row.Weight,
		Ahead: min(row.Ahead, store.MaxCountedBlocked), Slots: row.Slots, Others: row.Others, Executors: executors(queue),
	}, nil
}

// SetTopicWeight implements store.Topics.
func (t *Topics) SetTopicWeight(ctx context.Context, by store.Actor, topic string, weight int) (before int, err error) {
	if err := holdfast.CheckTopic(topic); err != nil {
		return 0, err
	}
	if weight < 1 || weight > store.MaxTopicWeight {
		return 0, fmt.Errorf("%w: the weight %d of a topic must be between 1 and %d", holdfast.ErrInvalid, weight, store.MaxTopicWeight)
	}
	err = t.transactions.Transact(ctx, "set the weight of a topic", func(ctx context.Context, tx transact.Transaction) error {
		var rows []struct{ Weight int }
		if err := tx.Read(ctx, "topic_weight", &rows, topic); err != nil {
			return err
		}
		before = rows[0].Weight
		if _, err := tx.Change(ctx, "topic_weigh", topic, weight); err != nil {
			return err
		}
		entry := transact.EntryOf(by, store.ActionSet, "topic "+topic)
		entry.Before, entry.After = weightText(before), weightText(weight)
		return transact.Record(ctx, tx, []transact.AuditRow{entry})
	})
	return before, err
}

func weightText(weight int) *string {
	text := fmt.Sprintf(`{"weight":%d}`, weight)
	return &text
}

// TopicWeights implements store.Topics.
func (t *Topics) TopicWeights(ctx context.Context, limit int) ([]store.TopicWeight, error) {
	var rows []store.TopicWeight
	err := t.transactions.Read(ctx, "list the weights of topics", "topic_weights", &rows, limit)
	return rows, err
}
