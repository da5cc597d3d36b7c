package slots_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slots"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func queue(executors int, held map[string]int) *slots.Queue {
	return &slots.Queue{Executors: executors, Rates: new(slots.Rates), Held: held}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		executors   int
		held        int // slots that the topic has
		alone, both int // results of FreeFor
	}{
		{0, 0, 1, 1}, {1, 0, 1, 1}, {2, 0, 1, 1}, {3, 0, 2, 1}, {4, 1, 2, 1}, {8, 0, 7, 4}, {16, 0, 14, 8}, {16, 15, 0, 0}, {100, 50, 38, 0},
	} {
		q := queue(test.executors, map[string]int{"a": test.held})
		if got := q.FreeFor("a"); got != test.alone {
			t.Errorf("%d executors, %d held: a topic alone may have %d more, want %d", test.executors, test.held, got, test.alone)
		}
		q.Several = true
		if got := q.FreeFor("a"); got != test.both {
			t.Errorf("%d executors, %d held: a topic may have %d more, want %d", test.executors, test.held, got, test.both)
		}
	}
	if got := queue(0, nil).Free(); got != 0 {
		t.Errorf("without executors %d slots are free, want 0", got)
	}
	if got := queue(4, map[string]int{"a": 3, "b": 4}).Free(); got != 0 {
		t.Errorf("%d slots are free although more are held than there are executors, want 0", got)
	}
}

// If tasks are short, a queue has as many slots as tasks end in 0.2 s. Only a topic's own tasks determine its slots:
// short tasks of others give no more slots to a topic with long tasks.
func TestShortTasksHaveMoreSlots(t *testing.T) {
	t.Parallel()
	rates := new(slots.Rates)
	now := begin
	for range 100 {
		rates.Observe(now, map[string]int{"short": 20})
		now = now.Add(10 * time.Millisecond) // 2000 a second
	}
	q := &slots.Queue{Executors: 10, Rates: rates, Held: map[string]int{"long": 5}, Several: true}
	if free := q.Free(); free < 350 || free > 420 {
		t.Errorf("%d slots are free, want about 395", free)
	}
	if got := q.FreeFor("long"); got != 0 {
		t.Errorf("the topic with long tasks may have %d more slots, want none beyond half of the executors", got)
	}
	if got := q.FreeFor("short"); got < 180 || got > 210 {
		t.Errorf("the topic with short tasks may have %d slots, want about half of 400", got)
	}
	for range 50 { // the tasks become long
		now = now.Add(100 * time.Millisecond)
		rates.Observe(now, nil)
	}
	if free := q.Free(); free != 5 {
		t.Errorf("%d slots are free after 5 s without an end, want 5", free)
	}
	if !rates.Idle() {
		t.Error("the rates are not idle")
	}
}

// Measured rates are right even if the decisions are irregular.
func TestRatesDoNotDependOnTheLooks(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		rates := new(slots.Rates)
		now, ended := begin, 0.0
		rates.Observe(now, nil)
		for now.Sub(begin) < 3*time.Second {
			step := time.Duration(1+random.IntN(60)) * time.Millisecond
			now = now.Add(step)
			before := int(ended)
			ended += 1000 * step.Seconds()
			rates.Observe(now, map[string]int{"a": int(ended) - before})
		}
		q := &slots.Queue{Executors: 1, Rates: rates, Held: map[string]int{}}
		if free := q.Free(); free < 150 || free > 260 {
			t.Errorf("%d slots, want about 200", free)
		}
	}
}

// If decisions are slow, tasks get enough slots to keep the executors busy until the decision after the next one.
func TestSlowLooksGiveMoreSlots(t *testing.T) {
	t.Parallel()
	rates := new(slots.Rates)
	now := begin
	for range 50 {
		rates.Observe(now, map[string]int{"a": 300})
		now = now.Add(300 * time.Millisecond) // 1000 a second
	}
	q := &slots.Queue{Executors: 10, Rates: rates, Held: map[string]int{}}
	if free := q.Free(); free < 550 || free > 650 {
		t.Errorf("%d slots are free, want about 600", free)
	}
}

// Topics that always have waiting tasks get slots by their weights, over many decisions with few slots each.
func TestSharesFollowTheWeights(t *testing.T) {
	t.Parallel()
	flows := []*slots.Flow{
		{Topic: "a", Weight: 1}, {Topic: "b", Weight: 2}, {Topic: "c", Weight: 5}, {Topic: "d", Weight: 1, Priority: holdfast.PriorityHigh},
	}
	given := make(map[string]int)
	for range 1000 {
		q := queue(100, map[string]int{})
		q.Several = true
		for _, f := range flows {
			f.Waiting, f.Given = 10, 0
		}
		q.Give(flows, 3)
		for _, f := range flows {
			given[f.Topic] += f.Given
		}
	}
	if want := map[string]int{"a": 300, "b": 600, "c": 1500, "d": 600}; fmt.Sprint(given) != fmt.Sprint(want) {
		t.Errorf("the topics get %v slots, want %v", given, want)
	}
}

// Give never gives more slots than are free, than tasks wait, or than a topic may have over all priorities. It leaves
// no slot free that a topic may have.
func TestGiveKeepsTheBounds(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(2, 2))
	for range 10_000 {
		q := queue(1+random.IntN(20), map[string]int{"a": random.IntN(5), "b": random.IntN(5)})
		q.Several = random.IntN(2) == 0
		var flows []*slots.Flow
		for range 1 + random.IntN(5) {
			flows = append(flows, &slots.Flow{
				Topic: string(rune('a' + random.IntN(3))), Priority: []holdfast.Priority{holdfast.PriorityLow, holdfast.PriorityNormal}[random.IntN(2)],
				Weight: 1 + random.IntN(3), Turn: random.Float64(), Waiting: random.IntN(6),
			})
		}
		free := q.Free()
		q.Give(flows, free)
		given, byTopic, more := 0, make(map[string]int), make(map[string]bool)
		for _, f := range flows {
			given += f.Given
			byTopic[f.Topic] += f.Given
			more[f.Topic] = more[f.Topic] || f.Given < f.Waiting
			if f.Given > f.Waiting {
				t.Fatalf("%d slots for %d tasks", f.Given, f.Waiting)
			}
		}
		for topic, n := range byTopic {
			switch {
			case n > q.FreeFor(topic):
				t.Fatalf("topic %s gets %d slots, may have %d", topic, n, q.FreeFor(topic))
			case given < free && more[topic] && n < q.FreeFor(topic):
				t.Fatalf("topic %s gets %d of %d slots although slots are free and tasks wait", topic, n, q.FreeFor(topic))
			}
		}
		if given > free {
			t.Fatalf("%d slots are given, %d were free", given, free)
		}
	}
}
