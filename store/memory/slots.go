package memory

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
	"github.com/holdfastq/holdfast/internal/slots"
	"github.com/holdfastq/holdfast/store"
)

const (
	// slotLook is the time until the next scan for slots that tasks have given back.
	slotLook = 100 * time.Millisecond
	// If the client that gives slots has not scanned for giverGone, another client takes over.
	giverGone = 400 * time.Millisecond
	// quietLook is the time between two scans while no task waits.
	quietLook = time.Second
	// sweepTopicsEvery is the time between two corrections of all rows.
	sweepTopicsEvery = 10 * time.Second
)

// slotGiving is the data that a client keeps from scan to scan. Only effects use it.
type slotGiving struct {
	rates    map[string]*slots.Rates // by queue
	past     map[topicName]float64   // the next turns of topics whose last waiting tasks got slots
	lookedAt time.Time
	sweptAt  time.Time
}

// Given describes a decision about the slots of a queue. An observer must not keep it.
type Given struct {
	Queue     string
	Executors int
	Free      int            // slots before the decision
	Held      map[string]int // slots that tasks had before the decision, by topic
	Flows     []GivenFlow    // by turn
}

// GivenFlow is a topic in a subqueue that takes part in a decision.
type GivenFlow struct {
	Subqueue, Topic string
	Given           int
	Gone            int // the part of Given for tasks that did not wait any more
}

// ObserveSlots makes the store call f after every decision about slots, inside the effect that makes the decision.
func (s *Store) ObserveSlots(f func(Given)) { s.given = f }

// TopicTurn returns the turn of a topic in a subqueue, and false if no task of the topic waits there.
func (s *Store) TopicTurn(subqueue, topic string) (float64, bool) {
	if t := s.db.topics.turn(topicName{subqueue, topic}); t != nil {
		return t.turn, true
	}
	return 0, false
}

// TopicWeight returns the weight of a topic.
func (s *Store) TopicWeight(topic string) int { return s.db.topics.weight(topic) }

// Executors returns the number of executors of the live workers that take a queue.
func (s *Store) Executors(queue string) int { return s.db.executors(queue) }

func (t *topics) turn(name topicName) *topicTurn {
	if i := slices.IndexFunc(t.turns, func(turn topicTurn) bool { return turn.topicName == name }); i >= 0 {
		return &t.turns[i]
	}
	return nil
}

// topicLook gives slots if tasks wait for them. Otherwise it only returns the wait until the next call, because another
// process may store tasks with topics.
func (c *Client) topicLook(limit int, now time.Time) store.Released {
	switch {
	case c.slotsToGive(now):
		return c.giveSlots(limit, now)
	case !c.store.db.topics.lookedAt.IsZero():
		return store.Released{Next: 2 * slotLook}
	}
	return store.Released{Next: noNext}
}

// slotsToGive reports whether giveSlots has something to do: tasks wait for slots, or rows are to be corrected.
func (c *Client) slotsToGive(now time.Time) bool {
	t := &c.store.db.topics
	return len(t.arrived) > 0 || len(t.turns) > 0 || len(t.tasks) > 0 && now.Sub(c.giving.lookedAt).Abs() > quietLook
}

// giveSlots takes slots back, and gives them to at most limit tasks of each queue. It does nothing if another client
// gives slots.
func (c *Client) giveSlots(limit int, now time.Time) store.Released {
	d := &c.store.db
	c.giving.lookedAt = now
	if d.topics.giver != c && now.Sub(d.topics.lookedAt).Abs() <= giverGone {
		return store.Released{Next: 2 * slotLook}
	}
	d.topics.giver, d.topics.lookedAt = c, now
	if now.Sub(c.giving.sweptAt).Abs() >= sweepTopicsEvery {
		c.giving.sweptAt = now
		c.store.sweepTopics()
	}
	look := &slotsLook{store: c.store, now: now, limit: limit, rates: c.giving.rates, past: c.giving.past, queues: make(map[string]*topicQueue)}
	if look.rates == nil {
		look.rates, look.past = make(map[string]*slots.Rates), make(map[topicName]float64)
		c.giving.rates, c.giving.past = look.rates, look.past
	}
	return look.run()
}

// slotsLook is one scan for free slots and waiting tasks.
type slotsLook struct {
	store  *Store
	now    time.Time
	limit  int
	rates  map[string]*slots.Rates
	past   map[topicName]float64
	queues map[string]*topicQueue
}

// topicQueue is the data of a queue during a scan.
type topicQueue struct {
	slots.Queue
	waiting []topicTurn // the topics in which tasks wait
}

func (l *slotsLook) run() store.Released {
	l.takeBack()
	l.beginTurns()
	released := store.Released{Next: 2 * slotLook}
	for _, name := range slices.Sorted(maps.Keys(l.queues)) {
		q := l.queues[name]
		if len(q.waiting) == 0 {
			continue
		}
		q.Executors = l.store.db.executors(name)
		given, more := l.give(name, q)
		released.Tasks += given
		if q.Executors > 0 {
			released.Waiting, released.Next = true, min(released.Next, slotLook)
		}
		if more {
			released.Next = 0
		}
	}
	return released
}

func (l *slotsLook) queue(subqueue string) *topicQueue {
	name, _ := holdfast.SplitSubqueue(subqueue)
	if l.queues[name] == nil {
		if l.rates[name] == nil {
			l.rates[name] = new(slots.Rates)
			l.rates[name].Observe(l.now, nil)
		}
		l.queues[name] = &topicQueue{Queue: slots.Queue{Rates: l.rates[name], Held: make(map[string]int)}}
	}
	return l.queues[name]
}

// takeBack takes back the slots of tasks that have ended, or that do not start now.
func (l *slotsLook) takeBack() {
	d := &l.store.db
	back := make(map[string]map[string]int) // by queue and topic
	release := func(row *topicTask) {
		name, _ := holdfast.SplitSubqueue(row.subqueue)
		if back[name] == nil {
			back[name] = make(map[string]int)
		}
		back[name][row.topic]++
	}
	d.topics.tasks = slices.DeleteFunc(d.topics.tasks, func(row topicTask) bool {
		ended := row.phase == hasSlot && d.hasEnded(row.task)
		if ended {
			l.queue(row.subqueue)
			release(&row)
		}
		return ended
	})
	for i := range d.topics.tasks {
		row := &d.topics.tasks[i]
		if row.phase != hasSlot {
			continue
		}
		q := l.queue(row.subqueue)
		switch task := d.task(row.task); {
		case task.State == holdfast.Ready && task.DueAt.Equal(store.BlockedUntil): // the attempt of the task has not begun
			row.phase = notNow
		case l.startsLater(task):
			row.phase = notNow
			release(row)
		default:
			q.Held[row.topic]++
		}
	}
	for name, rates := range l.rates {
		rates.Observe(l.now, back[name])
		if l.queues[name] == nil && rates.Idle() {
			delete(l.rates, name)
		}
	}
}

// hasEnded reports whether the task was deleted, or is neither ready nor running.
func (d *database) hasEnded(id holdfast.TaskID) bool {
	task := d.task(id)
	return task == nil || task.State != holdfast.Ready && task.State != holdfast.Running
}

// startsLater reports whether an open task is not due. After a setback of the clock, a task with a ticket may start
// before its NextRunAt.
func (l *slotsLook) startsLater(task *Task) bool {
	return task.State == holdfast.Ready && !task.DueAt.IsZero() && earlier(task.DueAt, task.NextRunAt).After(l.now)
}

// beginTurns sets the turns of topics in which tasks have begun to wait. The turn is the lowest one of the queue, or
// the last one of the topic if that is later.
func (l *slotsLook) beginTurns() {
	t := &l.store.db.topics
	lowest := make(map[string]float64)
	for _, turn := range t.turns {
		name, _ := holdfast.SplitSubqueue(turn.subqueue)
		if low, known := lowest[name]; !known || turn.turn < low {
			lowest[name] = turn.turn
		}
	}
	for name, turn := range l.past {
		queue, _ := holdfast.SplitSubqueue(name.subqueue)
		if low, known := lowest[queue]; !known || turn <= low {
			delete(l.past, name)
		}
	}
	for _, name := range t.arrived {
		if queue, _ := holdfast.SplitSubqueue(name.subqueue); t.turn(name) == nil {
			t.turns = append(t.turns, topicTurn{name, max(lowest[queue], l.past[name])})
		}
	}
	t.arrived = nil
	for _, turn := range t.turns {
		q := l.queue(turn.subqueue)
		q.waiting = append(q.waiting, turn)
	}
}

// slotFlow is a topic in a subqueue that takes part in a decision.
type slotFlow struct {
	slots.Flow
	topicName
	most  int               // number of tasks that can get slots
	tasks []holdfast.TaskID // the first ones that wait
}

// give gives the free slots of a queue. It returns the number of tasks that got slots, and whether another scan may
// give more at once.
func (l *slotsLook) give(name string, q *topicQueue) (given int, more bool) {
	free := min(q.Free(), l.limit)
	if free == 0 {
		return 0, false
	}
	flows := l.flows(q, free)
	observed := Given{Queue: name, Executors: q.Executors, Free: q.Free(), Held: maps.Clone(q.Held)}
	decided := make([]*slots.Flow, len(flows))
	for i, f := range flows {
		if f.most = q.Most(&f.Flow, free, len(flows)); f.most > 0 {
			f.tasks = l.store.db.topics.first(f.topicName, f.most+1) // one more, to find out whether more tasks wait
		}
		f.Waiting = min(len(f.tasks), f.most)
		decided[i] = &f.Flow
	}
	q.Give(decided, free)
	started := l.admit(flows)
	chosen := 0
	for _, f := range flows {
		gone := 0
		for _, id := range f.tasks[:f.Given] {
			if !slices.Contains(started, id) {
				l.store.correctTopic(id)
				gone++
			}
		}
		chosen += f.Given
		observed.Flows = append(observed.Flows, GivenFlow{f.subqueue, f.topicName.topic, f.Given, gone})
	}
	if l.store.given != nil {
		l.store.given(observed)
	}
	return len(started), len(started) == l.limit || len(started) < chosen
}

// flows returns the topics that get the next slots. It includes the topics before them that may have no more slots, so
// that their turns do not fall behind.
func (l *slotsLook) flows(q *topicQueue, free int) (flows []*slotFlow) {
	slices.SortStableFunc(q.waiting, func(a, b topicTurn) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.topic, b.topic))
	})
	q.Several = slices.ContainsFunc(q.waiting, func(turn topicTurn) bool { return turn.topic != q.waiting[0].topic })
	first := slices.IndexFunc(q.waiting, func(turn topicTurn) bool { return q.FreeFor(turn.topic) > 0 })
	if first < 0 {
		return nil
	}
	open := 0 // topics that may have more slots
	for _, turn := range q.waiting {
		if open == free {
			break
		}
		if q.FreeFor(turn.topic) > 0 {
			open++
		}
		_, priority := holdfast.SplitSubqueue(turn.subqueue)
		flow := slots.Flow{
			Topic: turn.topic, Priority: priority, Weight: l.store.db.topics.weight(turn.topic), Turn: max(turn.turn, q.waiting[first].turn),
		}
		flows = append(flows, &slotFlow{Flow: flow, topicName: turn.topicName})
	}
	return flows
}

// first returns the first n tasks that wait in a topic.
func (t *topics) first(name topicName, n int) (tasks []holdfast.TaskID) {
	for i := range t.tasks {
		if row := &t.tasks[i]; row.topicName == name && row.phase == waits && len(tasks) < n {
			tasks = append(tasks, row.task)
		}
	}
	return tasks
}

// admit lets the tasks start that have got slots and still wait, and stores the next turns of the flows. It returns the
// tasks that start. A waiting task was due before, so its NextRunAt is in the future only if the clock was set back
// since.
func (l *slotsLook) admit(flows []*slotFlow) (started []holdfast.TaskID) {
	t := &l.store.db.topics
	for _, f := range flows {
		if f.most > 0 && f.Given == len(f.tasks) { // no other task waits
			l.past[f.topicName] = f.Turn
			t.turns = slices.DeleteFunc(t.turns, func(turn topicTurn) bool { return turn.topicName == f.topicName })
		} else {
			t.turn(f.topicName).turn = f.Turn
		}
		for _, id := range f.tasks[:f.Given] {
			if task := l.store.db.task(id); task != nil && l.store.db.awaitsSlot(task) {
				started = append(started, id)
			}
		}
	}
	slices.Sort(started)
	var entries []store.OutboxEntry
	for _, id := range started {
		task := l.store.db.task(id)
		l.store.changing(task)
		t.row(id).phase = hasSlot
		task.NextRunAt = earlier(task.NextRunAt, l.now)
		if task.DueAt = l.now; task.Attempt == 1 { // an outbox entry has tickets of first attempts only
			task.DueAt, task.TicketedAt = time.Time{}, l.now
			addToEntry(&entries, task)
		}
		l.store.changed("GiveSlots", task, nil)
	}
	slices.SortFunc(entries, func(a, b store.OutboxEntry) int { return cmp.Compare(a.Queue, b.Queue) })
	for _, entry := range entries {
		l.store.addEntry(entry, l.now)
	}
	return started
}

// addEntry stores an outbox entry that a janitor publishes at once.
func (s *Store) addEntry(entry store.OutboxEntry, now time.Time) {
	s.db.last.entry++
	entry.ID = s.db.last.entry
	entry.Tickets = append([]message.Ticket(nil), entry.Tickets...)
	s.db.entries = append(s.db.entries, OutboxEntry{OutboxEntry: entry, CreatedAt: now, PublishAfter: now})
}

// sweepTopics corrects outdated rows. It also corrects the rows of waiting tasks whose topics have no stored turn.
func (s *Store) sweepTopics() {
	d := &s.db
	var stale []holdfast.TaskID
	for i := range d.topics.tasks {
		row, task := &d.topics.tasks[i], d.task(d.topics.tasks[i].task)
		wrong := false
		switch {
		case d.hasEnded(row.task):
			wrong = true
		case task.State == holdfast.Running || task.Ticketed():
			wrong = row.phase != hasSlot
		case row.phase == waits:
			wrong = !d.awaitsSlot(task) || task.Subqueue() != row.subqueue || d.topics.turn(row.topicName) == nil
		}
		if wrong {
			stale = append(stale, row.task)
		}
	}
	for _, id := range stale {
		s.correctTopic(id)
	}
}

// correctTopic corrects the row of a task.
func (s *Store) correctTopic(id holdfast.TaskID) {
	d := &s.db
	i, found := d.topics.find(id)
	switch task := d.task(id); {
	case !found:
	case d.hasEnded(id):
		d.topics.tasks = slices.Delete(d.topics.tasks, i, i+1)
	case task.State == holdfast.Running || task.Ticketed():
		d.topics.put(task, hasSlot)
	case d.awaitsSlot(task):
		d.topics.put(task, waits)
		d.topics.arrive(topicName{task.Subqueue(), task.Topic})
	default:
		d.topics.put(task, notNow)
	}
}
