package faults

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
)

var midnight = time.Date(2030, 1, 31, 0, 0, 0, 0, time.UTC)

func second(n float64) time.Time { return midnight.Add(time.Duration(n * float64(time.Second))) }

// books returns records of one accepted task, number 1, that is done.
func books(records ...Record) Books {
	for i := range records {
		records[i].Number = 1
	}
	return Books{
		Accepted: []Accepted{{At: second(0), First: 1, IDs: []holdfast.TaskID{7}, DelaysMS: []int64{0}}},
		States:   map[holdfast.TaskID]holdfast.State{7: holdfast.Done},
		Workers:  map[string]string{"10.77.0.21": "worker1", "10.77.0.22": "worker2"},
		Records:  records,
	}
}

// ran returns a record of an execution. The times are in seconds.
func ran(attempt int, worker string, began, ended float64, result Result) Record {
	return Record{Attempt: attempt, From: map[string]string{"worker1": "10.77.0.21", "worker2": "10.77.0.22"}[worker], Began: second(began), Ended: second(ended), Result: result}
}

// struck returns a fault that was alone.
func struck(kind Kind, began, ended float64, ends ...string) Struck {
	return Struck{Kind: kind, Began: second(began), Ended: second(ended), Ends: ends, Alone: true}
}

// upgrade returns a fault that replaced worker1 in its first second and worker2 in its last second.
func upgrade(began, ended float64) Struck {
	s := struck(Upgrade, began, ended)
	s.Turns = []Turn{{"worker1", second(began), second(began + 1)}, {"worker2", second(ended - 1), second(ended)}}
	return s
}

func TestTaskWithoutFaults(t *testing.T) {
	t.Parallel()
	v := Judge(books(ran(1, "worker1", 1, 2, Refused), ran(2, "worker2", 3, 4, Answered)))
	if v.Broken() || v.Accepted != 1 || v.Finished != 1 || v.Executions != 2 || v.Planned != 1 {
		t.Errorf("%+v", v)
	}
}

func TestLostTasks(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Books){
		"missing":        func(b *Books) { delete(b.States, 7) },
		"still ready":    func(b *Books) { b.States[7] = holdfast.Ready },
		"dead":           func(b *Books) { b.States[7] = holdfast.Dead },
		"never executed": func(b *Books) { b.Records = nil },
		"never answered": func(b *Books) { b.Records[0].Result = Refused },
	} {
		b := books(ran(1, "worker1", 1, 2, Answered))
		change(&b)
		if v := Judge(b); len(v.Lost) != 1 || v.Finished != 0 {
			t.Errorf("%s: lost %v", name, v.Lost)
		}
	}
}

func TestExplanationsOfRepeatedExecutions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		first Record
		fault Struck
		want  Kind // empty if the fault explains nothing
	}{
		{"its worker was killed", ran(1, "worker1", 1, 2, Left), struck(KillWorker, 2, 2, "worker1"), KillWorker},
		{"it was answered right before its worker was killed", ran(1, "worker1", 1, 2, Answered), struck(KillWorker, 2.1, 2.1, "worker1"), KillWorker},
		{"it was answered long before the fault", ran(1, "worker1", 1, 2, Answered), struck(KillWorker, 5, 5, "worker1"), ""},
		{"it began long after the fault", ran(1, "worker1", 20, 21, Answered), struck(StopWorker, 2, 12, "worker1"), ""},
		{"another worker was killed", ran(1, "worker1", 1, 2, Left), struck(KillWorker, 2, 2, "worker2"), ""},
		{"a janitor was killed", ran(1, "worker1", 1, 2, Left), struck(KillJanitor, 2, 2, "janitor1"), ""},
		{"a node was killed", ran(1, "worker1", 1, 2, Answered), struck(KillNode, 1.5, 9), ""},
		{"its worker was cut off from the broker", ran(1, "worker1", 1, 2, Answered), struck(CutBroker, 1, 9, "worker1"), ""},
		{"its worker was cut off from the database", ran(1, "worker1", 1, 2, Left), struck(CutStore, 1, 9, "worker1"), CutStore},
		{"its worker was replaced", ran(1, "worker1", 1, 2, Left), upgrade(1.5, 3), Upgrade},
		{"another worker was replaced", ran(1, "worker1", 20, 21, Answered), upgrade(10, 30), ""},
		{"the database was killed", ran(1, "worker2", 1, 2, Answered), struck(StoreKill, 1, 3), StoreKill},
	} {
		b := books(c.first, ran(2, "worker2", c.first.Ended.Sub(midnight).Seconds()+1, 40, Answered))
		b.Struck = []Struck{c.fault}
		v := Judge(b)
		if explained := v.Extra[c.fault.Kind] == 1; explained != (c.want != "") || explained == (len(v.Unexplained) == 1) {
			t.Errorf("%s: explained %v, unexplained %v", c.name, v.Extra, v.Unexplained)
		}
	}
}

func TestLongExecutionsAreCounted(t *testing.T) {
	t.Parallel()
	if v := Judge(books(ran(1, "worker1", 1, 62, Answered))); v.Long != 1 || v.Broken() {
		t.Errorf("%+v", v)
	}
}

func TestAttemptExecutedTwice(t *testing.T) {
	t.Parallel()
	b := books(ran(1, "worker1", 1, 2, Left), ran(1, "worker2", 3, 4, Answered))
	b.Struck = []Struck{struck(KillWorker, 2, 2, "worker1")}
	if v := Judge(b); len(v.SameAttempt) != 1 || !v.Broken() {
		t.Errorf("%+v", v)
	}
}

// A refusal explains the next execution only if the recorder refused before that execution began.
func TestOverlappingExecutionsAreNoRetry(t *testing.T) {
	t.Parallel()
	if v := Judge(books(ran(1, "worker1", 1, 5, Refused), ran(2, "worker2", 3, 6, Answered))); len(v.Unexplained) != 1 {
		t.Errorf("%+v", v)
	}
}

func TestCostOfAFault(t *testing.T) {
	t.Parallel()
	b := books(ran(1, "worker1", 1, 2, Left), ran(2, "worker2", 2.5, 3, Answered))
	b.Struck = []Struck{struck(KillWorker, 2, 2, "worker1")}
	b.Accepted = append(b.Accepted,
		Accepted{At: second(1), First: 2, IDs: []holdfast.TaskID{8}, DelaysMS: []int64{0}},      // was due before the fault
		Accepted{At: second(1), First: 3, IDs: []holdfast.TaskID{9}, DelaysMS: []int64{60000}},  // was due long after the fault
		Accepted{At: second(2.5), First: 4, IDs: []holdfast.TaskID{10}, DelaysMS: []int64{500}}) // was due shortly after the fault
	for number, began := range map[int]float64{2: 6, 3: 90, 4: 7} {
		r := ran(1, "worker2", began, began+1, Answered)
		r.Number = number
		b.Records = append(b.Records, r)
		b.States[holdfast.TaskID(number+6)] = holdfast.Done
	}
	v := Judge(b)
	if got := v.Restarted[KillWorker]; !slices.Equal(got, []time.Duration{500 * time.Millisecond}) {
		t.Errorf("interrupted tasks started again after %v", got)
	}
	if got := v.Waited[KillWorker]; !slices.Equal(got, []time.Duration{4 * time.Second}) {
		t.Errorf("new tasks waited for %v", got)
	}
	var report strings.Builder
	WriteReport(&report, Options{Seed: 3, For: time.Minute}, b, v)
	for _, want := range []string{"SEED=3", "| **lost** | 0 |", "| worker: kill -9 | 1 | 1 | 0.0 s | 1 | 0.50 s / 0.50 s | – | 4.00 s / 4.00 s |"} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("the report does not contain %q:\n%s", want, report.String())
		}
	}
}

func TestSeedDeterminesThePlan(t *testing.T) {
	t.Parallel()
	draw := func(seed uint64) (acts []Act) {
		p := NewPlan(seed, nil)
		for range 100 {
			acts = append(acts, p.Next())
		}
		return acts
	}
	one := draw(1)
	if !reflect.DeepEqual(one, draw(1)) || reflect.DeepEqual(one, draw(2)) {
		t.Error("the seed does not determine the plan")
	}
	seen, pairs := make(map[Kind]int), 0
	for _, act := range one {
		for _, f := range act.Faults {
			seen[f.Kind]++
			if trait := traitOf(f.Kind); f.For < trait.least || f.For > max(trait.least, trait.most) {
				t.Errorf("%s lasts %s", f.Kind, f.For)
			}
		}
		if len(act.Faults) == 2 {
			pairs++
			if !compatible(act.Faults[0].Kind, act.Faults[1].Kind) {
				t.Errorf("%v cannot be inflicted at the same time", act.Faults)
			}
		}
	}
	if seen[KillWorker] < 6 {
		t.Errorf("workers were killed %d times", seen[KillWorker])
	}
	seen[KillWorker] /= 3
	least, most := slices.Min(slices.Collect(maps.Values(seen))), slices.Max(slices.Collect(maps.Values(seen)))
	if len(seen) != len(traits) || most > least+1 || pairs == 0 {
		t.Errorf("%[2]d of %[1]d kinds were drawn, between %[3]d and %[4]d times each; %[5]d pairs", len(traits), len(seen), least, most, pairs)
	}
}

func TestParseKind(t *testing.T) {
	t.Parallel()
	for _, trait := range traits {
		if kind, err := ParseKind(string(trait.kind)); err != nil || kind != trait.kind {
			t.Errorf("%s: %v", trait.kind, err)
		}
	}
	if _, err := ParseKind("rain"); err == nil || !strings.Contains(err.Error(), string(KillWorker)) {
		t.Errorf("an unknown kind: %v", err)
	}
}

func TestLimitedExecutionsAreCounted(t *testing.T) {
	t.Parallel()
	limited := func(n int, worker string, began, ended float64) (records []Record) {
		for range n {
			r := ran(1, worker, began, ended, Answered)
			r.Limited = true
			records = append(records, r)
		}
		return records
	}
	crowd := books()
	crowd.Records = append(limited(limitedAtOnce, "worker1", 1, 2), limited(limitedAtOnce, "worker2", 2, 3)...)
	crowd.Records = append(crowd.Records, ran(1, "worker1", 1, 3, Answered)) // has no limit
	if v := Judge(crowd); v.Limited != limitedAtOnce || len(v.Exceeded) != 0 {
		t.Errorf("as many as allowed: %d, %q", v.Limited, v.Exceeded)
	}
	crowd.Records = append(crowd.Records, limited(1, "worker2", 1.5, 1.9)...)
	if v := Judge(crowd); v.Limited != limitedAtOnce+1 || len(v.Exceeded) != 1 || !v.Broken() {
		t.Errorf("one too many: %d, %q", v.Limited, v.Exceeded)
	}
	crowd.Struck = []Struck{struck(StopWorker, 1.2, 9, "worker1")}
	if v := Judge(crowd); v.Limited != limitedAtOnce+1 || len(v.Exceeded) != 0 {
		t.Errorf("one too many beside orphans: %d, %q", v.Limited, v.Exceeded)
	}
}

func TestExecutionsInAPause(t *testing.T) {
	t.Parallel()
	pause := Paused{Began: second(10), Ended: second(30)}
	for name, c := range map[string]struct {
		began  float64
		paused bool
		fault  []Struck
		want   int
	}{
		"in the pause":                        {20, true, nil, 1},
		"right before its end":                {29.9, true, nil, 1},
		"claimed before the pause":            {12, true, nil, 0},
		"after the pause":                     {30.1, true, nil, 0},
		"another key":                         {20, false, nil, 0},
		"its worker was stopped":              {20, true, []Struck{struck(StopWorker, 9, 19, "worker1")}, 0},
		"another worker was stopped":          {20, true, []Struck{struck(StopWorker, 9, 19, "worker2")}, 1},
		"a fault that does not delay a start": {20, true, []Struck{struck(KillJanitor, 19, 19, "janitor1")}, 1},
	} {
		r := ran(1, "worker1", c.began, c.began+1, Answered)
		r.Paused = c.paused
		b := books(r)
		b.Pauses, b.Struck = []Paused{pause}, c.fault
		if v := Judge(b); len(v.Escaped) != c.want || v.Broken() != (c.want > 0) || v.Pauses != 1 {
			t.Errorf("%s: %v", name, v.Escaped)
		}
	}
}

func TestBlockedTasksAreSeparate(t *testing.T) {
	t.Parallel()
	others := func(n int, began, ended float64) (records []Record) {
		for range n {
			r := ran(1, "worker2", began, ended, Answered)
			r.Number, r.Limited = 2, true
			records = append(records, r)
		}
		return records
	}
	for name, c := range map[string]struct {
		limited, paused bool
		pause           Paused
		others          []Record
		want            bool
	}{
		"no key":                                   {pause: Paused{second(1), second(8)}, others: others(8, 3, 8)},
		"a pause meanwhile":                        {paused: true, pause: Paused{second(1), second(8)}, want: true},
		"a pause before":                           {paused: true, pause: Paused{second(0), second(2)}},
		"a pause after":                            {paused: true, pause: Paused{second(9), second(12)}},
		"the limit was used up":                    {limited: true, others: others(8, 3, 8), want: true},
		"one place was free":                       {limited: true, others: others(7, 3, 8)},
		"only the interrupted tasks used it up":    {limited: true, others: others(7, 1, 2)},
		"it used up the limit itself, by the next": {limited: true, others: others(7, 3, 11)},
	} {
		first, next := ran(1, "worker1", 1, 2, Left), ran(2, "worker2", 9, 10, Answered)
		for _, r := range []*Record{&first, &next} {
			r.Limited, r.Paused = c.limited, c.paused
		}
		b := books(first, next)
		b.Records = append(b.Records, c.others...)
		b.Struck, b.Pauses = []Struck{struck(KillWorker, 2, 2, "worker1")}, []Paused{c.pause}
		v := Judge(b)
		wait, none := v.Restarted[KillWorker], v.Blocked[KillWorker]
		if c.want {
			wait, none = none, wait
		}
		if !slices.Equal(wait, []time.Duration{7 * time.Second}) || len(none) > 0 {
			t.Errorf("%s: could run %v, blocked %v", name, v.Restarted, v.Blocked)
		}
	}
}
