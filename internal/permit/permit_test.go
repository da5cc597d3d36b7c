package permit_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/permit"
	"github.com/holdfastq/holdfast/store"
)

var only = permit.Ref{Gate: 1}

// decide calls Decide for n tasks that need a permit of the only bucket, and returns how many were admitted.
func decide(b *permit.Bucket, now time.Time, n int) (admitted int) {
	candidates := make([]permit.Candidate, n)
	for i := range candidates {
		candidates[i] = permit.Candidate{At: only, Needs: []permit.Ref{only}}
	}
	for _, outcome := range permit.Decide(now, map[permit.Ref]*permit.Bucket{only: b}, candidates, n) {
		if outcome.Admitted {
			admitted++
		}
	}
	b.Behind = admitted < n
	return admitted
}

// In any period, tasks get at most the permits of that period and of one more second, even if decisions are late and
// irregular. If tasks always wait and no decision is more than a second late, no permit is lost.
func TestARateIsKept(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 0))
		b := &permit.Bucket{Rate: store.Rate{Count: 1 + r.IntN(1000), Per: time.Second}}
		latest := []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second}[seed%3]
		backlog := seed%2 == 0
		now := begin
		given := decide(b, now, 1100)
		for range 100 {
			now = now.Add(rand.N(latest))
			n := 1100 // more than a decision allows
			if !backlog {
				n = r.IntN(50)
			}
			given += decide(b, now, n)
			if most := 1 + int(now.Sub(begin)/b.Rate.Interval()) + int(time.Second/b.Rate.Interval()); given > most {
				t.Fatalf("seed %d: %d permits in %s at %s", seed, given, now.Sub(begin), b.Rate)
			}
		}
		if least := int(now.Sub(begin) / b.Rate.Interval()); backlog && latest <= time.Second && given < least {
			t.Errorf("seed %d: %d permits in %s at %s, want at least %d", seed, given, now.Sub(begin), b.Rate, least)
		}
	}
}

// A next start far ahead is corrected: the clock was set back, or the rate was lower before. A decision whose time is a
// little earlier than that of the decision before corrects nothing.
func TestANextStartFarAheadIsCorrected(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct{ allowed, want time.Duration }{
		"far ahead":                       {2 * time.Hour, time.Second},
		"one interval ahead":              {time.Second, time.Second},
		"by a decision with a later time": {time.Second + 300*time.Millisecond, time.Second + 300*time.Millisecond},
	} {
		b := &permit.Bucket{Rate: store.Rate{Count: 1, Per: time.Second}, Allowed: now.Add(test.allowed)}
		if n := decide(b, now, 3); n > 0 {
			t.Errorf("%s: %d tasks get permits", name, n)
		}
		if got := b.Next(now).Sub(now); got != test.want {
			t.Errorf("%s: the next start is allowed after %s, want %s", name, got, test.want)
		}
	}
}

// flow simulates tasks that need one to three limits. It makes decisions as the stores do, and its attempts take any
// time.
type flow struct {
	t       *testing.T
	r       *rand.Rand
	now     time.Time
	buckets map[permit.Ref]*permit.Bucket
	blocked []permit.Candidate // oldest first
	running []attempt
	needs   map[holdfast.TaskID][]permit.Ref
	left    map[permit.Ref]time.Time // when the oldest task of several limits first left a bucket
	oldest  holdfast.TaskID
	passed  time.Duration // how long after that a younger task got the last permit of the bucket
	started int           // oldest tasks of several limits that have started
}

type attempt struct {
	task holdfast.TaskID
	ends time.Time
}

const step = 10 * time.Millisecond

// look decides about the buckets that have free permits, as a store does. It drops the reservations of tasks that have
// ended.
func (f *flow) look() {
	f.running = slices.DeleteFunc(f.running, func(a attempt) bool {
		if a.ends.After(f.now) {
			return false
		}
		for _, ref := range f.needs[a.task] {
			f.buckets[ref].InUse--
		}
		return true
	})
	var candidates []permit.Candidate
	for _, c := range f.blocked {
		if f.buckets[c.At].Free(f.now, 1) > 0 {
			candidates = append(candidates, c)
		}
	}
	f.watch()
	for i, outcome := range permit.Decide(f.now, f.buckets, candidates, 1000) {
		c := candidates[i]
		at := slices.IndexFunc(f.blocked, func(b permit.Candidate) bool { return b.Task == c.Task })
		if !outcome.Admitted {
			if c.Task == f.oldest && outcome.To != c.At && f.left[c.At].IsZero() {
				f.left[c.At] = f.now
			}
			f.blocked[at].At = outcome.To
			continue
		}
		f.blocked = slices.Delete(f.blocked, at, at+1)
		f.running = append(f.running, attempt{c.Task, f.now.Add(step + time.Duration(f.r.ExpFloat64()*float64(5*time.Second)))})
		f.admitted(c)
	}
}

// watch finds the oldest blocked task that needs several limits. The times begin when it becomes the oldest task of
// all.
func (f *flow) watch() {
	if len(f.blocked) == 0 || f.blocked[0].Task == f.oldest || len(f.blocked[0].Needs) == 1 {
		return
	}
	f.oldest, f.left, f.passed = f.blocked[0].Task, make(map[permit.Ref]time.Time), 0
}

// admitted checks that younger tasks take permits only for a short time, and that each permit is given once.
func (f *flow) admitted(c permit.Candidate) {
	if c.Task == f.oldest {
		f.started++
		f.left = nil
	}
	for _, ref := range c.Needs {
		b := f.buckets[ref]
		if b.InUse > b.Concurrency {
			f.t.Fatalf("%d permits of %d are in use", b.InUse, b.Concurrency)
		}
		if since, left := f.left[ref]; left && b.InUse == b.Concurrency && f.now.Sub(since) > f.passed {
			f.passed = f.now.Sub(since)
		}
	}
	if f.passed > 1600*time.Millisecond {
		f.t.Fatalf("task %d is the oldest, and %s after it left a limit a younger task gets the last permit of that", f.oldest, f.passed)
	}
}

// add adds a task that one of its limits blocks.
func (f *flow) add(id holdfast.TaskID, needs []permit.Ref) {
	f.needs[id] = needs
	f.blocked = append(f.blocked, permit.Candidate{Task: id, Since: f.now, At: needs[f.r.IntN(len(needs))], Needs: needs})
}

// The oldest task starts although younger tasks want each of its permits and attempts take any time. The same holds for
// the next oldest task, so every task starts at some time.
func TestTheOldestTaskOfSeveralLimitsStarts(t *testing.T) {
	t.Parallel()
	started := 0
	for seed := range uint64(40) {
		f := &flow{t: t, r: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1e9, 0), buckets: make(map[permit.Ref]*permit.Bucket), needs: make(map[holdfast.TaskID][]permit.Ref)}
		var refs []permit.Ref
		for i := range 2 + f.r.IntN(6) {
			refs = append(refs, permit.Ref{Gate: store.ID(i + 1)})
			f.buckets[refs[i]] = &permit.Bucket{Concurrency: 1 + f.r.IntN(3)}
		}
		id := holdfast.TaskID(0)
		for range 30000 {
			for _, ref := range refs {
				waiting := 0
				for _, c := range f.blocked {
					if slices.Contains(c.Needs, ref) {
						waiting++
					}
				}
				if waiting > 4 {
					continue
				}
				needs := []permit.Ref{ref}
				for _, other := range refs {
					if other != ref && len(needs) < 3 && f.r.IntN(20) == 0 {
						needs = append(needs, other)
					}
				}
				slices.SortFunc(needs, func(a, b permit.Ref) int { return cmp.Compare(a.Gate, b.Gate) })
				id++
				f.add(id, needs)
			}
			f.look()
			f.now = f.now.Add(step)
		}
		started += f.started
		for i := 0; len(f.blocked)+len(f.running) > 0; i++ {
			if i == 1e6 {
				t.Fatalf("seed %d: %d tasks never start", seed, len(f.blocked))
			}
			f.look()
			f.now = f.now.Add(step)
		}
	}
	if started < 100 {
		t.Errorf("only %d tasks of several limits were the oldest", started)
	}
}

// Two limits are always busy with younger tasks. A task that needs both starts after a few seconds.
func TestATaskOfTwoBusyLimitsStarts(t *testing.T) {
	t.Parallel()
	a, b := permit.Ref{Gate: 1}, permit.Ref{Gate: 2}
	f := &flow{t: t, r: rand.New(rand.NewPCG(1, 2)), now: time.Unix(1e9, 0), needs: make(map[holdfast.TaskID][]permit.Ref)}
	f.buckets = map[permit.Ref]*permit.Bucket{a: {Concurrency: 1}, b: {Concurrency: 1}}
	begin, id := f.now, holdfast.TaskID(1)
	for _, ref := range []permit.Ref{a, b} {
		id++
		f.add(id, []permit.Ref{ref})
	}
	f.look()
	f.now = f.now.Add(step)
	f.add(1, []permit.Ref{a, b})
	for f.started == 0 {
		for _, ref := range []permit.Ref{a, b} {
			if id++; len(f.blocked) < 10 {
				f.add(id, []permit.Ref{ref})
			}
		}
		f.look()
		f.now = f.now.Add(step)
		if f.now.Sub(begin) > time.Minute {
			t.Fatal("the oldest task does not start")
		}
	}
	t.Logf("it starts after %s", f.now.Sub(begin))
}

// A reservation costs a limit one permit while it keeps it, and none before.
func TestAReservationCostsOnePermit(t *testing.T) {
	t.Parallel()
	now, other := time.Unix(1e9, 0), permit.Ref{Gate: 2}
	kept := permit.Reservation{Task: 5, Since: now.Add(-time.Minute), From: now.Add(-10 * time.Second)}
	early := kept
	early.From = now.Add(-time.Second)
	for name, test := range map[string]struct {
		reserved permit.Reservation
		bucket   permit.Bucket
		task     permit.Candidate
		want     int
	}{
		"no reservation":        {permit.Reservation{}, permit.Bucket{Concurrency: 100}, permit.Candidate{Since: now}, 100},
		"younger tasks":         {kept, permit.Bucket{Concurrency: 100}, permit.Candidate{Since: now}, 99},
		"at first":              {early, permit.Bucket{Concurrency: 100}, permit.Candidate{Since: now}, 100},
		"older tasks":           {kept, permit.Bucket{Concurrency: 100}, permit.Candidate{Since: kept.Since.Add(-1)}, 100},
		"of the same age":       {kept, permit.Bucket{Concurrency: 2}, permit.Candidate{Task: 6, Since: kept.Since}, 1},
		"a rate":                {kept, permit.Bucket{Rate: store.Rate{Count: 10, Per: time.Second}, Behind: true}, permit.Candidate{Since: now}, 10},
		"a rate without credit": {kept, permit.Bucket{Rate: store.Rate{Count: 1, Per: time.Minute}, Behind: true}, permit.Candidate{Since: now}, 0},
	} {
		test.bucket.Reserved, test.task.At, test.task.Needs = test.reserved, only, []permit.Ref{only}
		got := 0
		for _, outcome := range permit.Decide(now, map[permit.Ref]*permit.Bucket{only: &test.bucket}, slices.Repeat([]permit.Candidate{test.task}, 200), 200) {
			if outcome.Admitted {
				got++
			}
		}
		if got != test.want {
			t.Errorf("%s: %d tasks get permits, want %d", name, got, test.want)
		}
		if next := test.bucket.Next(now); got < test.bucket.Concurrency && next != now.Add(permit.ReservedLook) {
			t.Errorf("%s: the next look is at %s", name, next)
		}
	}
	// The task with the reservation takes the kept permit, and the reservation ends. A task that waits for a breaker
	// reserves nothing.
	limit, full := &permit.Bucket{Concurrency: 1, Reserved: kept}, &permit.Bucket{Concurrency: 1, InUse: 1}
	task := permit.Candidate{Task: 5, Since: kept.Since, At: only, Needs: []permit.Ref{only, other}}
	buckets := map[permit.Ref]*permit.Bucket{only: limit, other: full}
	permit.Decide(now, buckets, []permit.Candidate{task}, 1)
	if limit.Reserved != kept {
		t.Errorf("after a second refusal: %+v", limit.Reserved)
	}
	full.InUse = 0
	if outcome := permit.Decide(now, buckets, []permit.Candidate{task}, 1)[0]; !outcome.Admitted || limit.Reserved != (permit.Reservation{}) {
		t.Errorf("the task: %+v, %+v", outcome, limit.Reserved)
	}
	limit.InUse, full.NotBefore = 0, now.Add(time.Minute)
	if permit.Decide(now, buckets, []permit.Candidate{task}, 1); limit.Reserved != (permit.Reservation{}) {
		t.Errorf("beside an open breaker: %+v", limit.Reserved)
	}
}

// The first probes of a breaker are the newest and the oldest task that have not been tried, and one in the middle or a
// tried one. A task that failed as a probe, and was blocked again, comes last.
func TestProbesDiffer(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		now     time.Time
		tried   []holdfast.TaskID // sorted by the time when they were blocked
		untried []holdfast.TaskID
		want    []holdfast.TaskID
	}{
		"untried":            {now, nil, []holdfast.TaskID{3, 4, 5, 6, 7, 8, 9}, []holdfast.TaskID{9, 3, 6}},
		"one has been tried": {now, []holdfast.TaskID{1}, []holdfast.TaskID{3, 4, 5, 6, 7, 8, 9}, []holdfast.TaskID{9, 3, 1}},
		"by chance":          {now.Add(time.Microsecond), []holdfast.TaskID{1}, []holdfast.TaskID{3, 4, 5, 6, 7, 8, 9}, []holdfast.TaskID{9, 3, 6}},
		"one is untried":     {now, []holdfast.TaskID{2, 3, 1}, []holdfast.TaskID{4}, []holdfast.TaskID{4, 2, 3}},
		"all were tried":     {now, []holdfast.TaskID{2, 4, 3, 1}, nil, []holdfast.TaskID{2, 4, 3}},
		"few":                {now, nil, []holdfast.TaskID{3, 4}, []holdfast.TaskID{3, 4}},
	} {
		var candidates []permit.Candidate
		for _, id := range test.tried {
			candidates = append(candidates, permit.Candidate{Task: id, Tried: true})
		}
		for _, id := range test.untried {
			candidates = append(candidates, permit.Candidate{Task: id})
		}
		for i := range candidates {
			candidates[i].Since, candidates[i].At, candidates[i].Needs = now.Add(time.Duration(i)), only, []permit.Ref{only}
		}
		b := &permit.Bucket{Concurrency: 3, NotBefore: now.Add(-time.Second)}
		var got []holdfast.TaskID
		for i, outcome := range permit.Decide(test.now, map[permit.Ref]*permit.Bucket{only: b}, candidates, 100) {
			if outcome.Admitted {
				got = append(got, candidates[i].Task)
			}
		}
		slices.Sort(got)
		slices.Sort(test.want)
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: the probes are %v, want %v", name, got, test.want)
		}
	}
	limit := &permit.Bucket{Concurrency: 3}
	candidates := []permit.Candidate{{Task: 1, Tried: true}, {Task: 2}, {Task: 3, Tried: true}, {Task: 4}}
	for i := range candidates {
		candidates[i].At, candidates[i].Needs = only, []permit.Ref{only}
	}
	for i, outcome := range permit.Decide(now, map[permit.Ref]*permit.Bucket{only: limit}, candidates, 100) {
		if outcome.Admitted != (i < 3) {
			t.Errorf("the task %d of a limit is admitted: %v", candidates[i].Task, outcome.Admitted)
		}
	}
}
