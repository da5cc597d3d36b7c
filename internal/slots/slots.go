// Package slots decides which tasks with topics get slots. It has no store: a caller reads the topics in which tasks
// wait, passes them to this package, and stores the decision. See store.Topics.
//
// # Number
//
// A queue has as many slots as its workers have executors. If tasks are short, so many would leave executors idle until
// the next look. So a queue also has as many slots as tasks end in 0.2 s, or in the time of two looks if that is
// longer. A task with a slot then waits about that long for an executor, whatever the duration of the tasks.
//
// # Shares
//
// The topic with the lowest turn gets the next slot, and its turn increases by 1 / weight. A topic without waiting
// tasks has no turn, and begins with the lowest turn of the others. That is start-time fair queueing (Goyal, Vin and
// Cheng 1996), with shares of starts, not of time.
//
// # Bounds
//
// While tasks of several topics wait, a topic has at most half of the slots: half of the executors, or, if its tasks
// are short, half of what they need. A topic that waits alone leaves an eighth of the executors to others, and at least
// one. So the first task of another topic starts soon, even if all tasks of this one take very long.
package slots

import (
	"container/heap"
	"math"
	"time"

	"github.com/holdfastq/holdfast"
)

const (
	// ahead is for how long the tasks with slots keep the executors busy, if looks are frequent.
	ahead = 200 * time.Millisecond
	// longest bounds the time between two looks that counts.
	longest = 500 * time.Millisecond
	// smoothed is the number of looks over which the time between them is measured.
	smoothed = 8
	// smoothing is the time over which rates are measured.
	smoothing = 200 * time.Millisecond
	// most is the highest number of slots of a queue.
	most = 10_000
	// forgotten is the rate, in tasks a second, below which a topic counts as one whose tasks do not end.
	forgotten = 0.5
)

// Rates says how fast the tasks of a queue end, in all and by topic. The zero value is ready. It is not safe for
// concurrent use.
type Rates struct {
	at       time.Time
	interval time.Duration // between two looks
	all      float64       // tasks a second
	topic    map[string]float64
}

// Observe records that slots were given back since the call before. released has their number by topic.
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

// Idle reports whether no task has ended for some time.
func (r *Rates) Idle() bool { return len(r.topic) == 0 }

// Queue is what a decision needs to know about a queue.
type Queue struct {
	Executors int
	Rates     *Rates
	Held      map[string]int // slots that tasks have, by topic
	Several   bool           // tasks of more than one topic wait
}

// Free returns how many slots the queue has for more tasks.
func (q *Queue) Free() int {
	held := 0
	for topic, n := range q.Held {
		held += min(n, q.alone(topic)) // tasks with permits of limits have slots beyond the bound
	}
	return max(0, q.slots()-held)
}

// slots returns the number of slots of the queue.
func (q *Queue) slots() int {
	if q.Executors == 0 { // no worker
		return 0
	}
	return min(most, max(q.Executors, q.Rates.needed(q.Rates.all)))
}

// needed returns how many slots keep executors busy that end tasks at a rate, until the look after the next one.
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

// alone returns how many slots a topic may have if no other one waits.
func (q *Queue) alone(topic string) int {
	return max(1, max(q.Executors, q.Rates.needed(q.Rates.topic[topic]))-max(1, q.Executors/8))
}

// Flow is the waiting tasks of a topic with one priority.
type Flow struct {
	Topic    string
	Priority holdfast.Priority
	Weight   int
	Turn     float64
	Waiting  int // tasks that may get slots in this decision
	Given    int // the result: how many of them get slots
}

// Most returns how many tasks of a flow a decision can use, if n flows take part. With few flows, it is more than the
// share of the flow, because other flows may have fewer tasks.
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
