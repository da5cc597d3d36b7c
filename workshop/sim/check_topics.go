package sim

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/memory"
)

const (
	// slotLimit is how long a task may wait for a slot while its queue has a free one for its topic, and a janitor
	// works. It is shorter than the time between two corrections of all rows of tasks with topics.
	slotLimit = 8 * time.Second
	// cursorsOneIn is the average number of steps between two readings of the cursors.
	cursorsOneIn = 30
	// recently is how long an ended task may count towards the number of slots.
	recently = 5 * time.Second
	// leadLimit limits the growth of the lead of a topic over another one. Each of the two topics adds leadLimit
	// divided by its weight.
	leadLimit = 2
)

// topical checks the tasks with topics. It reads the rows of the store and its decisions about slots.
type topical struct {
	check  *checker
	rng    *rand.Rand // separate, so that reading the cursors does not change the simulation
	source *memory.Client
	// slots has the tasks that had slots after the previous step.
	slots map[holdfast.TaskID]bool
	// kept has the attempts that crashes and interruptions made due at once. Their tasks keep their slots.
	kept map[holdfast.TaskID]int
	// free has, for each task that waits although its queue has a free slot for its topic, since when the checker has
	// seen it so.
	free map[holdfast.TaskID]time.Time
	// ended has, by queue, the times at which tasks with slots ended or left the queue.
	ended map[string][]time.Time
	// leads has the pairs of topics that have both waited since an earlier decision.
	leads map[topicPair]*lead

	given    int // tasks that got slots
	compared int // decisions that were compared with the shares of two topics
	cursors  int // parts whose cursors were compared with the tasks
}

// topicPair names two topics of a subqueue.
type topicPair struct{ subqueue, first, second string }

// lead is the number of slots that the first topic of a pair got, less that of the second. Each slot is divided by the
// weight of its topic.
type lead struct {
	weights [2]int
	most    float64
	slots   float64
}

func newTopical(c *checker) *topical {
	t := &topical{check: c, rng: rand.New(rand.NewPCG(c.world.plan.Seed, 0x71374491b5c0fbcf)), ended: make(map[string][]time.Time)}
	t.fellBack()
	return t
}

// fellBack forgets everything that the store may have lost. The processes remember the tasks that have ended.
func (t *topical) fellBack() {
	t.slots, t.kept = make(map[holdfast.TaskID]bool), make(map[holdfast.TaskID]int)
	t.free, t.leads = make(map[holdfast.TaskID]time.Time), make(map[topicPair]*lead)
}

// awaits reports whether the task waits for a slot.
func awaits(t *memory.Task) bool {
	return t.Topic != "" && t.State == holdfast.Ready && t.DueAt.Equal(store.BlockedUntil) && !t.Waits && !t.Blocked()
}

// observe checks a change of a task: a task with a ticket has a slot, and a task does not wait for another slot after a
// crash.
func (t *topical) observe(change memory.Change) {
	after := change.After
	if before := change.Before; before != nil && before.Topic != "" && (before.State == holdfast.Running || before.Ticketed()) {
		t.ended[before.Queue] = append(t.ended[before.Queue], time.Now())
	}
	if after == nil || after.Topic == "" {
		return
	}
	w := t.check.world
	switch {
	case after.Ticketed() && !w.store.HasSlot(after.ID):
		t.check.fail("task %s of topic %s got a ticket without a slot", after.ID, after.Topic)
	case awaits(after) && t.kept[after.ID] == after.Attempt && w.state.leapt.IsZero():
		t.check.fail("attempt %d of task %s was made due by a crash, and waits for another slot", after.Attempt, after.ID)
	}
	if change.Op == "GiveSlots" && after.State == holdfast.Ready && !awaits(after) {
		t.given++
	}
	delete(t.kept, after.ID)
	if move := change.Move; move != nil && move.Wait == 0 && (move.Event == holdfast.EventCrash || move.Event == holdfast.EventInterrupt) && t.slots[after.ID] {
		t.kept[after.ID] = after.Attempt
	}
}

// decided checks one decision about slots.
func (t *topical) decided(d memory.Given) {
	waiting := t.waiting(d.Queue)
	slots, given := d.Free, make(map[string]int)
	for _, n := range d.Held {
		slots += n
	}
	total := 0
	several := make(map[string]bool)
	for _, f := range d.Flows {
		if given[f.Topic] += f.Given; f.Given > 0 {
			several[f.Topic] = true
		}
		total += f.Given
	}
	for part := range waiting {
		several[part.Topic] = true
	}
	t.ended[d.Queue] = slices.DeleteFunc(t.ended[d.Queue], func(at time.Time) bool { return time.Since(at) > recently })
	if most := max(d.Executors, len(t.ended[d.Queue])); total > 0 && slots-d.Free+total > most {
		t.check.fail("queue %s has %d executors, %d of its tasks have ended recently, and %d have slots", d.Queue, d.Executors, len(t.ended[d.Queue]), slots-d.Free+total)
	}
	bound := max(d.Executors, slots) - max(1, d.Executors/8)
	if len(several) > 1 {
		bound = max(d.Executors, slots) / 2
	}
	for topic, n := range given {
		if n > 0 && d.Held[topic]+n > max(1, bound) {
			t.check.fail("topic %s has %d of %d slots of queue %s, while tasks of %d topics wait", topic, d.Held[topic]+n, slots, d.Queue, len(several))
		}
	}
	t.compare(d, waiting, given)
}

// waiting returns the numbers of tasks of a queue that wait for slots.
func (t *topical) waiting(queue string) map[store.TopicPart]int {
	waiting := make(map[store.TopicPart]int)
	tasks := t.check.world.store.Tasks()
	for i := range tasks {
		if task := &tasks[i]; task.Queue == queue && awaits(task) {
			waiting[store.TopicPart{Topic: task.Topic, Queue: queue, Priority: task.Priority}]++
		}
	}
	return waiting
}

// compare checks the shares of topics of the same subqueue. While tasks of two topics wait, neither topic may get more
// slots than its weight allows. There are two exceptions: a topic makes up for slots that it has missed, and the other
// topic may have no more.
func (t *topical) compare(d memory.Given, waiting map[store.TopicPart]int, given map[string]int) {
	w := t.check.world
	flows := make(map[topicPair]memory.GivenFlow) // by subqueue and topic
	for _, f := range d.Flows {
		flows[topicPair{f.Subqueue, f.Topic, ""}] = f
	}
	ended := func(pair topicPair) bool { // reports whether the lead of the pair has ended
		for _, topic := range []string{pair.first, pair.second} {
			_, has := w.store.TopicTurn(pair.subqueue, topic)
			if queue, priority := holdfast.SplitSubqueue(pair.subqueue); !has || waiting[store.TopicPart{Topic: topic, Queue: queue, Priority: priority}] == 0 {
				return true
			}
		}
		full := d.Held[pair.second]+given[pair.second] >= max(1, d.Executors/2)
		return full || flows[topicPair{pair.subqueue, pair.second, ""}].Gone > 0
	}
	for pair, l := range t.leads {
		if queue, _ := holdfast.SplitSubqueue(pair.subqueue); queue != d.Queue {
			continue
		}
		weights := [2]int{w.store.TopicWeight(pair.first), w.store.TopicWeight(pair.second)}
		if weights != l.weights || ended(pair) {
			delete(t.leads, pair)
			continue
		}
		first, second := flows[topicPair{pair.subqueue, pair.first, ""}].Given, flows[topicPair{pair.subqueue, pair.second, ""}].Given
		t.compared++
		if l.slots += float64(first)/float64(weights[0]) - float64(second)/float64(weights[1]); l.slots > l.most {
			t.check.fail("while tasks of the topics %s and %s of %s wait, %s got %.2f slots more than its share, want at most %.2f",
				pair.first, pair.second, pair.subqueue, pair.first, l.slots, l.most)
		}
	}
	for a := range waiting {
		for b := range waiting {
			pair := topicPair{holdfast.Subqueue(a.Queue, a.Priority), a.Topic, b.Topic}
			if a.Priority == b.Priority && a.Topic != b.Topic && t.leads[pair] == nil && !ended(pair) {
				t.leads[pair] = t.newLead(pair)
			}
		}
	}
}

// newLead returns the lead of a pair before the next decision. The turns say how many slots a topic has missed.
func (t *topical) newLead(pair topicPair) *lead {
	s := t.check.world.store
	l := &lead{weights: [2]int{s.TopicWeight(pair.first), s.TopicWeight(pair.second)}}
	first, _ := s.TopicTurn(pair.subqueue, pair.first)
	second, _ := s.TopicTurn(pair.subqueue, pair.second)
	_, priority := holdfast.SplitSubqueue(pair.subqueue)
	level := map[holdfast.Priority]float64{
		holdfast.PriorityLow: 1, holdfast.PriorityNormal: 2, holdfast.PriorityHigh: 4, holdfast.PriorityCritical: 8,
	}[priority]
	l.most = leadLimit/float64(l.weights[0]) + leadLimit/float64(l.weights[1]) + max(0, second-first)*level + 0.001
	return l
}

// afterStep checks that tasks keep their slots while they need them, and that no task waits although there is a slot.
func (t *topical) afterStep() {
	w := t.check.world
	if !w.plan.topical() {
		return
	}
	held := make(map[string]map[string]int) // by queue and topic
	all := make(map[string]int)             // by queue
	tasks := w.store.Tasks()
	now := w.clock.now()
	for i := range tasks {
		task := &tasks[i]
		if task.Topic == "" {
			continue
		}
		has := w.store.HasSlot(task.ID)
		uses := task.State == holdfast.Running || task.Ticketed()
		if uses && !has && (task.Ticketed() || t.slots[task.ID]) {
			t.check.fail("task %s of topic %s is %s at attempt %d and has lost its slot", task.ID, task.Topic, task.State, task.Attempt)
		}
		if t.slots[task.ID] = has; has && (uses || task.State == holdfast.Ready && !task.DueAt.After(now)) {
			if held[task.Queue] == nil {
				held[task.Queue] = make(map[string]int)
			}
			held[task.Queue][task.Topic]++
			all[task.Queue]++
		}
	}
	for i := range tasks {
		task := &tasks[i]
		executors := 0
		if awaits(task) && !task.NextRunAt.After(now) {
			executors = w.store.Executors(task.Queue)
		}
		if all[task.Queue] >= executors || held[task.Queue][task.Topic] >= max(1, executors/2) {
			delete(t.free, task.ID)
			continue
		}
		if t.free[task.ID].IsZero() {
			t.free[task.ID] = time.Now()
		}
		if time.Since(t.free[task.ID]) > slotLimit && time.Since(t.check.gates.quiet) > slotLimit {
			t.check.fail("task %s has waited for %s, although its topic %s may have another slot", task.ID, time.Since(t.free[task.ID]), task.Topic)
		}
	}
	if t.rng.IntN(cursorsOneIn) == 0 {
		t.checkCursors()
	}
}

// checkCursors compares the cursors of all parts, and of one topic, with the tasks.
func (t *topical) checkCursors() {
	w := t.check.world
	if t.source == nil {
		t.source = w.store.Client(nil)
	}
	topic := topicNames[t.rng.IntN(len(topicNames))]
	parts, err := t.source.ListTopics(context.Background(), "", store.TopicPart{}, 1000)
	progress, failed := t.source.TopicProgress(context.Background(), topic)
	if err != nil || failed != nil {
		t.check.fail("the cursors cannot be read: %v, %v", err, failed)
		return
	}
	for i := range parts {
		part := &parts[i]
		t.cursors++
		want := t.cursorsOf(func(task *memory.Task) bool {
			return task.Topic == part.Topic && task.Queue == part.Queue && task.Priority == part.Priority
		})
		if part.Cursors != want {
			t.check.fail("the cursors of topic %s in %s are %+v, want %+v", part.Topic, holdfast.Subqueue(part.Queue, part.Priority), part.Cursors, want)
		}
	}
	if want := t.cursorsOf(func(task *memory.Task) bool { return task.Topic == topic }); progress.Cursors != want {
		t.check.fail("the cursors of topic %s are %+v, want %+v", topic, progress.Cursors, want)
	}
	listed := func(task *memory.Task) bool {
		return slices.ContainsFunc(parts, func(p store.TopicUse) bool {
			return p.Topic == task.Topic && p.Queue == task.Queue && p.Priority == task.Priority
		})
	}
	tasks := w.store.Tasks()
	for i := range tasks {
		if task := &tasks[i]; task.Topic != "" && !task.State.Final() && !listed(task) {
			t.check.fail("task %s of topic %s is %s, and the list of topics does not have it", task.ID, task.Topic, task.State)
		}
	}
}

// cursorsOf computes the cursors of some tasks.
func (t *topical) cursorsOf(of func(*memory.Task) bool) store.Cursors {
	w := t.check.world
	want := store.Cursors{Scanned: w.store.Stored(), Done: w.store.Stored()}
	tasks := w.store.Tasks()
	for i := range tasks {
		task := &tasks[i]
		if !of(task) || task.State.Final() {
			continue
		}
		want.Done = min(want.Done, task.ID-1)
		if task.State == holdfast.Ready && task.StartedAt.IsZero() {
			want.Scanned = min(want.Scanned, task.ID-1)
		}
	}
	return want
}
