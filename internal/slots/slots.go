// Package slots decides which tasks with topics get slots. It does not use a store: the caller reads the topics with
// waiting tasks, calls this package, and stores the decision. See store.Topics.
//
// # Number
//
// A queue has at least as many slots as its workers have executors. With short tasks, that number would leave executors
// idle until the next decision. So a queue has more slots if more tasks end in 0.2 s, or in the time of two decisions
// if that is longer. A task with a slot then waits about that long for an executor, whatever the duration of the tasks.
//
// # Shares
//
// The topic with the lowest turn gets the next slot, and its turn increases by 1 / weight. A topic without waiting
// tasks has no turn. When its tasks wait again, it begins with the lowest turn of the others. The algorithm is
// start-time fair queueing (Goyal, Vin and Cheng 1996). It shares the starts, not the execution time.
//
// # Permits
//
// Tasks that get permits of limits and breakers do not wait for turns. But a queue has only as many tasks with permits as
// its workers have executors, and those that end in 0.4 s; see Permits. Otherwise a high limit would put thousands of
// tickets into the queue, before those of all other tasks. A task with a topic gets its permits and a slot together, and
// only within the bound of its topic.
//
// # Bounds
//
// While tasks of several topics wait, a topic has at most half of the slots: half of the executors, or half of the
// slots that its own tasks need if they are short. A topic that waits alone leaves one eighth of the executors to
// others, and at least one. So the first task of another topic starts soon, even if all tasks of this topic take very
// long.
package slots

import (
	"container/heap"
	"math"
	"time"

	"github.com/holdfastq/holdfast"
)

const (
	// ahead is how long tasks with slots keep the executors busy, if decisions are frequent.
	ahead = 200 * time.Millisecond
	// longest is the maximum measured time between two decisions.
	longest = 500 * time.Millisecond
	// smoothed is the number of decisions over which their interval is averaged.
	smoothed = 8
	// smoothing is the time over which rates are averaged.
	smoothing = 200 * time.Millisecond
	// most is the maximum number of slots of a queue.
	most = 10_000
	// permitsAhead is how many times as long as ahead tasks with permits may wait for executors. A decision about permits
	// costs more than one about slots.
	permitsAhead = 2
	// forgotten is a rate in tasks per second. A lower rate of a topic is treated as zero.
	forgotten = 0.5
)

// Rates are the rates at which the tasks of a queue end, in total and by topic. The zero value is ready to use. Rates
// are not safe for concurrent use.
type Rates struct {
	at       time.Time
	interval time.Duration // average time between two decisions
	all      float64       // tasks per second
	topic    map[string]float64
}

// Observe records how many slots of each topic became free since the call before.
func (r *Rates) Observe(now time.Time, released map[string]int) {
	elapsed := now.Sub(r.at)
	first := r.at.IsZero()
	r.at = now
	if first || elapsed <= 0 {
		return
	}
	r.interval += (min(elapsed, longest) - r.interval) / smoothed
	part := 1 - math.Exp(-elapsed.Seconds()/smoothing.Seconds())
	total := 0
	for topic, rate := range r.topic {
		if rate -= part * rate; rate < forgotten {
			delete(r.topic, topic)
		} else {
			r.topic[topic] = rate
		}
	}
	for topic, n := range released {
		total += n
		if r.topic == nil {
			r.topic = make(map[string]float64)
		}
		r.topic[topic] += part * float64(n) / elapsed.Seconds()
	}
	r.all += part * (float64(total)/elapsed.Seconds() - r.all)
}

// Idle reports whether the rates of all topics are treated as zero.
func (r *Rates) Idle() bool { return len(r.topic) == 0 }

// Permits are the tasks of a queue that have permits, and the rates at which these tasks end. The zero value is ready to
// use. Permits are not safe for concurrent use.
type Permits struct {
	Rates
	held map[string]int // after the latest decision, by topic
}

// Observe records how many tasks of each topic have permits now. held belongs to Permits after that.
func (p *Permits) Observe(now time.Time, held map[string]int) {
	ended := make(map[string]int)
	for topic, n := range p.held {
		if n > held[topic] {
			ended[topic] = n - held[topic]
		}
	}
	p.Rates.Observe(now, ended)
	p.held = held
}

// Give records that a task gets permits.
func (p *Permits) Give(topic string) { p.held[topic]++ }

// Room returns how many more tasks may get permits in a queue with so many executors. It returns 0 until half of the
// tasks beyond the executors have ended, so that few decisions give many permits. soon reports whether the next decision
// must follow soon: no more tasks have permits than there are executors, so executors may become idle.
func (p *Permits) Room(executors int) (n int, soon bool) {
	held := 0
	for _, n := range p.held {
		held += n
	}
	beyond := min(most, permitsAhead*p.needed(p.all))
	switch {
	case executors == 0: // no worker
		return 0, false
	case held > executors+beyond/2:
		return 0, false
	}
	return executors + beyond - held, held <= executors
}

// Queue is the state of a queue for one decision.
type Queue struct {
	Executors int
	Rates     *Rates
	Held      map[string]int // slots that tasks have, by topic
	Several   bool           // tasks of more than one topic wait
}

// Free returns how many more slots the queue can give.
func (q *Queue) Free() int {
	held := 0
	for topic, n := range q.Held {
		held += min(n, q.alone(topic)) // the bound of a topic shrinks with its rate
	}
	return max(0, q.slots()-held)
}

func (q *Queue) slots() int {
	if q.Executors == 0 { // no worker
		return 0
	}
	return min(most, max(q.Executors, q.Rates.needed(q.Rates.all)))
}

// needed returns how many slots keep executors busy until the decision after the next one, if tasks end at the given
// rate.
func (r *Rates) needed(rate float64) int {
	return int(math.Ceil(rate * max(ahead, 2*r.interval).Seconds()))
}

// FreeFor returns how many more slots a topic may have.
func (q *Queue) FreeFor(topic string) int {
	bound := q.alone(topic)
	if q.Several {
		bound = max(1, q.Executors/2, min(q.slots()/2, q.Rates.needed(q.Rates.topic[topic])))
	}
	return max(0, bound-q.Held[topic])
}

// alone returns how many slots a topic may have while no other topic waits.
func (q *Queue) alone(topic string) int {
	return max(1, max(q.Executors, q.Rates.needed(q.Rates.topic[topic]))-max(1, q.Executors/8))
}

// Flow is the set of waiting tasks of one topic and priority.
type Flow struct {
	Topic    string
	Priority holdfast.Priority
	Weight   int
	Turn     float64
	Waiting  int // tasks that may get slots in this decision
	Given    int // result: how many of them get slots
}

// Most returns how many tasks of a flow to read for a decision over n flows. With few flows this exceeds the flow's
// share, because other flows may have fewer tasks.
func (q *Queue) Most(f *Flow, free, n int) int {
	share := f.Weight
	if n < free {
		share *= 2 * (free + n - 1) / n
	}
	return min(free, share, q.FreeFor(f.Topic))
}

// levels are the weights of the priorities, as in package consumer.
var levels = map[holdfast.Priority]float64{
	holdfast.PriorityLow: 1, holdfast.PriorityNormal: 2, holdfast.PriorityHigh: 4, holdfast.PriorityCritical: 8,
}

// Give gives at most free slots to the flows. It sets Given and the next turn of each flow.
func (q *Queue) Give(flows []*Flow, free int) {
	left := make(map[string]int) // slots that each topic may still get
	var waiting byTurn
	for _, f := range flows {
		if _, known := left[f.Topic]; !known {
			left[f.Topic] = q.FreeFor(f.Topic)
		}
		if f.Waiting > 0 {
			waiting = append(waiting, f)
		}
	}
	heap.Init(&waiting)
	for free > 0 && len(waiting) > 0 {
		f := waiting[0]
		if left[f.Topic] == 0 || f.Given == f.Waiting {
			heap.Pop(&waiting)
			continue
		}
		f.Given++
		f.Turn += 1 / (float64(f.Weight) * levels[f.Priority])
		left[f.Topic]--
		free--
		heap.Fix(&waiting, 0)
	}
}

// byTurn is a heap of flows.
type byTurn []*Flow

func (h byTurn) Len() int { return len(h) }

func (h byTurn) Less(i, j int) bool {
	if h[i].Turn != h[j].Turn {
		return h[i].Turn < h[j].Turn
	}
	return h[i].Topic < h[j].Topic
}

func (h byTurn) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *byTurn) Push(f any) { *h = append(*h, f.(*Flow)) }

func (h *byTurn) Pop() any {
	last := len(*h) - 1
	f := (*h)[last]
	*h = (*h)[:last]
	return f
}
