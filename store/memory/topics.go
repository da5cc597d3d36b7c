package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// topics holds the rows that only tasks with topics have.
type topics struct {
	tasks   []topicTask         // the open tasks, by id; ended tasks may still have rows
	turns   []topicTurn         // turns of the topics in which tasks wait, in no order
	arrived []topicName         // where tasks have begun to wait since the last scan; replaced, never changed
	weights []store.TopicWeight // by topic; replaced, never changed

	giver    *Client // the client that gives slots
	lookedAt time.Time
}

// phase is the phase of an open task with a topic. Not every change of the task updates it; a scan corrects it later.
type phase int

const (
	waits   phase = iota // the task waits for a slot
	hasSlot              // the task has a ticket, or runs
	notNow               // the task is not due, or something else blocks it
)

// topicName names a topic in a subqueue.
type topicName struct{ subqueue, topic string }

// topicTask is the row of a task with a topic.
type topicTask struct {
	task holdfast.TaskID
	topicName
	phase phase
}

// topicTurn says when a topic gets its next slot; see package slots.
type topicTurn struct {
	topicName
	turn float64
}

// copyTo copies t into to, and reuses the memory of to.
func (t *topics) copyTo(to *topics) {
	tasks, turns := append(to.tasks[:0], t.tasks...), append(to.turns[:0], t.turns...)
	*to = *t
	to.tasks, to.turns = tasks, turns
}

// row returns the row of a task, or nil if there is none.
func (t *topics) row(id holdfast.TaskID) *topicTask {
	if i, found := t.find(id); found {
		return &t.tasks[i]
	}
	return nil
}

func (t *topics) find(id holdfast.TaskID) (int, bool) {
	return slices.BinarySearchFunc(t.tasks, id, func(row topicTask, id holdfast.TaskID) int { return cmp.Compare(row.task, id) })
}

// put stores the row of a task, or changes it.
func (t *topics) put(task *Task, now phase) {
	i, found := t.find(task.ID)
	if !found {
		t.tasks = slices.Insert(t.tasks, i, topicTask{task: task.ID})
	}
	t.tasks[i].topicName, t.tasks[i].phase = topicName{task.Subqueue(), task.Topic}, now
}

// arrive records that tasks of a topic have begun to wait.
func (t *topics) arrive(name topicName) {
	if !slices.Contains(t.arrived, name) {
		t.arrived = append(slices.Clip(t.arrived), name)
	}
}

// weight returns the weight of a topic.
func (t *topics) weight(topic string) int {
	if i := slices.IndexFunc(t.weights, func(w store.TopicWeight) bool { return w.Topic == topic }); i >= 0 {
		return t.weights[i].Weight
	}
	return 1
}

// placeTopical lets a new task with a topic wait for a slot, unless it is not due or has a place in the order of its
// key.
func (d *database) placeTopical(task *Task, isOrdered bool, now time.Time) {
	if task.Topic == "" {
		return
	}
	d.topics.put(task, notNow)
	switch {
	case task.Ticketed() && !isOrdered:
		d.await(task)
	case task.Ticketed(): // the task waits for a slot after a janitor has found it due
		task.DueAt, task.TicketedAt = now, time.Time{}
	case task.DueAt.Equal(store.BlockedUntil) && !task.Waits: // must differ from the mark of a waiting task
		task.DueAt = task.DueAt.Add(time.Microsecond)
	}
}

// await lets a task wait for a slot.
func (d *database) await(task *Task) {
	task.DueAt, task.TicketedAt = store.BlockedUntil, time.Time{}
	task.endPark()
	d.topics.put(task, waits)
	d.topics.arrive(topicName{task.Subqueue(), task.Topic})
}

// HasSlot reports whether the task has a slot of its topic.
func (s *Store) HasSlot(id holdfast.TaskID) bool {
	row := s.db.topics.row(id)
	return row != nil && row.phase == hasSlot
}

// AwaitsSlot reports whether the task waits for a slot of its topic.
func (s *Store) AwaitsSlot(t *Task) bool { return s.db.awaitsSlot(t) }

func (d *database) awaitsSlot(t *Task) bool {
	if t.Topic == "" || t.State != holdfast.Ready || !t.DueAt.Equal(store.BlockedUntil) || t.Waits || t.Blocked() {
		return false
	}
	row := d.topics.row(t.ID)
	return row != nil && row.phase == waits
}

// needsSlot reports whether a due task has to wait for a slot before it gets a ticket.
func (d *database) needsSlot(t *Task) bool {
	if t.Topic == "" {
		return false
	}
	row := d.topics.row(t.ID)
	return row == nil || row.phase != hasSlot || row.subqueue != t.Subqueue()
}

// Stored returns the highest id that the store has given out.
func (s *Store) Stored() holdfast.TaskID { return holdfast.TaskID(s.db.last.task) }

// uses returns the parts of topics that have rows. The parts are in the order of ListTopics.
func (d *database) uses(wanted func(topicName) bool) []store.TopicUse {
	var uses []store.TopicUse
	stored := holdfast.TaskID(d.last.task)
	for i := range d.topics.tasks {
		row := &d.topics.tasks[i]
		if !wanted(row.topicName) {
			continue
		}
		part := partOf(row.topicName)
		at := slices.IndexFunc(uses, func(u store.TopicUse) bool { return u.TopicPart == part })
		if at < 0 {
			at = len(uses)
			uses = append(uses, store.TopicUse{TopicPart: part, Cursors: store.Cursors{Scanned: stored, Done: stored}, Weight: d.topics.weight(row.topic)})
		}
		use := &uses[at]
		switch row.phase {
		case waits:
			use.Waiting++
		case hasSlot:
			use.Slots++
		default:
			use.Later++
		}
		if task := d.task(row.task); task != nil && !task.State.Final() {
			use.Done = min(use.Done, task.ID-1)
			if task.State == holdfast.Ready && task.StartedAt.IsZero() {
				use.Scanned = min(use.Scanned, task.ID-1)
			}
		}
	}
	slices.SortFunc(uses, func(a, b store.TopicUse) int { return compareParts(a.TopicPart, b.TopicPart) })
	return uses
}

func partOf(name topicName) store.TopicPart {
	queue, priority := holdfast.SplitSubqueue(name.subqueue)
	return store.TopicPart{Topic: name.topic, Queue: queue, Priority: priority}
}

// compareParts orders parts by queue, the highest priority first, and by topic.
func compareParts(a, b store.TopicPart) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Topic, b.Topic))
}

// TopicProgress implements store.Topics.
func (c *Client) TopicProgress(ctx context.Context, topic string) (store.TopicProgress, error) {
	progress := store.TopicProgress{Topic: topic, Weight: 1, Parts: []store.TopicUse{}}
	err := c.do(ctx, Step{Op: "TopicProgress", text: topic}, func(time.Time) error {
		d := &c.store.db
		progress.Weight, progress.Stored = d.topics.weight(topic), c.store.Stored()
		progress.Cursors = store.Cursors{Scanned: progress.Stored, Done: progress.Stored}
		progress.Parts = append(progress.Parts, d.uses(func(name topicName) bool { return name.topic == topic })...)
		for _, part := range progress.Parts {
			progress.Scanned, progress.Done = min(progress.Scanned, part.Scanned), min(progress.Done, part.Done)
		}
		return nil
	})
	if err != nil {
		return store.TopicProgress{}, err
	}
	return progress, nil
}

// ListTopics implements store.Topics.
func (c *Client) ListTopics(ctx context.Context, queue string, after store.TopicPart, limit int) ([]store.TopicUse, error) {
	list := []store.TopicUse{}
	err := c.do(ctx, Step{Op: "ListTopics", text: queue}, func(time.Time) error {
		list = append(list, c.store.db.uses(func(name topicName) bool {
			part := partOf(name)
			return (queue == "" || part.Queue == queue) && (after == store.TopicPart{} || compareParts(part, after) > 0)
		})...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return list[:min(limit, len(list))], nil
}

// TopicOf implements store.Topics.
func (c *Client) TopicOf(ctx context.Context, id holdfast.TaskID) (place store.TopicPlace, err error) {
	err = c.do(ctx, Step{Op: "TopicOf"}, func(time.Time) error {
		d := &c.store.db
		task := d.task(id)
		if task == nil || !d.awaitsSlot(task) {
			return fmt.Errorf("%w: task %s does not wait for a slot of a topic", holdfast.ErrNotFound, id)
		}
		own := d.topics.row(id).topicName
		place = store.TopicPlace{TopicPart: partOf(own), Weight: d.topics.weight(own.topic), Executors: d.executors(task.Queue)}
		for _, row := range d.topics.tasks {
			switch part := partOf(row.topicName); {
			case part.Queue != place.Queue || row.topic != own.topic:
			case row.phase == hasSlot:
				place.Slots++
			case row.phase == waits && part == place.TopicPart && row.task < id:
				place.Ahead++
			}
		}
		others := make(map[string]bool)
		for _, turn := range d.topics.turns {
			if turn.topic != own.topic && partOf(turn.topicName).Queue == place.Queue {
				others[turn.topic] = true
			}
		}
		place.Others = len(others)
		return nil
	})
	if err != nil {
		return store.TopicPlace{}, err
	}
	return place, nil
}

// executors returns the number of executors of the live workers that take a queue.
func (d *database) executors(queue string) (n int) {
	for i := range d.workers {
		w := &d.workers[i]
		if w.State == store.WorkerLive && !w.Draining && (len(w.Queues) == 0 || slices.Contains(w.Queues, queue)) {
			n += w.Concurrency
		}
	}
	return n
}

// allExecutors returns the number of executors of all live workers.
func (d *database) allExecutors() (n int) {
	for i := range d.workers {
		if w := &d.workers[i]; w.State == store.WorkerLive && !w.Draining {
			n += w.Concurrency
		}
	}
	return n
}

// TopicQueues implements store.Topics.
func (c *Client) TopicQueues(ctx context.Context) ([]store.TopicQueue, error) {
	var queues []store.TopicQueue
	err := c.do(ctx, Step{Op: "TopicQueues"}, func(time.Time) error {
		d := &c.store.db
		for _, turn := range d.topics.turns {
			part := partOf(turn.topicName)
			i := slices.IndexFunc(queues, func(q store.TopicQueue) bool { return q.Queue == part.Queue && q.Priority == part.Priority })
			if i < 0 {
				i = len(queues)
				queues = append(queues, store.TopicQueue{Queue: part.Queue, Priority: part.Priority, Executors: d.executors(part.Queue)})
			}
			queues[i].Topics++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(queues, func(a, b store.TopicQueue) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(b.Priority, a.Priority))
	})
	return queues, nil
}

// SetTopicWeight implements store.Topics.
func (c *Client) SetTopicWeight(ctx context.Context, by store.Actor, topic string, weight int) (before int, err error) {
	if err := holdfast.CheckTopic(topic); err != nil {
		return 0, err
	}
	if weight < 1 || weight > store.MaxTopicWeight {
		return 0, fmt.Errorf("%w: the weight %d of a topic must be between 1 and %d", holdfast.ErrInvalid, weight, store.MaxTopicWeight)
	}
	err = c.do(ctx, Step{Op: "SetTopicWeight", text: fmt.Sprintf("%s: %d", topic, weight)}, func(now time.Time) error {
		if err := by.Validate(); err != nil {
			return err
		}
		known := &c.store.db.topics
		before = known.weight(topic)
		weights := slices.DeleteFunc(slices.Clone(known.weights), func(w store.TopicWeight) bool { return w.Topic == topic })
		if weight != 1 {
			weights = append(weights, store.TopicWeight{Topic: topic, Weight: weight})
			slices.SortFunc(weights, func(a, b store.TopicWeight) int { return cmp.Compare(a.Topic, b.Topic) })
		}
		known.weights = weights
		c.store.recordAudit(store.AuditEntry{
			At: now, Actor: by, Action: store.ActionSet, Subject: "topic " + topic, Before: weightOf(before), After: weightOf(weight),
		})
		return nil
	})
	if err != nil {
		return 0, err
	}
	return before, nil
}

func weightOf(weight int) json.RawMessage { return fmt.Appendf(nil, `{"weight":%d}`, weight) }

// TopicWeights implements store.Topics.
func (c *Client) TopicWeights(ctx context.Context, limit int) ([]store.TopicWeight, error) {
	var weights []store.TopicWeight
	err := c.do(ctx, Step{Op: "TopicWeights"}, func(time.Time) error {
		weights = c.store.db.topics.weights
		return nil
	})
	if err != nil {
		return nil, err
	}
	return slices.Clone(weights[:min(limit, len(weights))]), nil
}
