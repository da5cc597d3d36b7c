package sim

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/holdfastq/holdfast/workshop/sim/campaign"
	"github.com/holdfastq/holdfast/workshop/sim/patch"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// build compiles the simulator with the given edits and returns the options of a campaign with it.
func build(t *testing.T, mutant ...patch.Edit) campaign.Options {
	t.Helper()
	if testing.Short() {
		t.Skip("compiles the simulator with an edited runtime")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	o := campaign.Options{Root: root, Work: t.TempDir(), Mutant: mutant, Seed: 1, Processes: runtime.NumCPU()}
	if err := campaign.Build(o); err != nil {
		t.Fatal(err)
	}
	return o
}

// outcomes runs a campaign and returns the result of each seed.
func outcomes(t *testing.T, o campaign.Options) map[uint64]campaign.Seed {
	t.Helper()
	seen := make(map[uint64]campaign.Seed)
	o.Seen = func(s campaign.Seed) { seen[s.Seed] = s }
	if err := campaign.Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	return seen
}

func TestSeedsHoldTheInvariants(t *testing.T) {
	o := build(t)
	o.Seeds = slow.Pick(100, 2000)
	tasks, started, early, excused, operating, interrupted := 0, 0, 0, 0, 0, 0
	pauses, blocked, released, expired, limits, permitted := 0, 0, 0, 0, 0, 0
	tripped, probed, rated := 0, 0, 0
	turns, doomed, unblocked := 0, 0, 0
	slots, compared, cursors := 0, 0, 0
	children, saves, commits, late := 0, 0, 0, 0
	typed, unparked := 0, 0
	seen := outcomes(t, o)
	for _, s := range seen {
		tasks, started, early, excused = tasks+s.Tasks, started+s.Started, early+s.Early, excused+s.Excused
		pauses, blocked, released, expired = pauses+s.Pauses, blocked+s.Blocked, released+s.Released, expired+s.Expired
		limits, permitted = limits+s.Limited, permitted+s.Permitted
		tripped, probed, rated = tripped+s.Tripped, probed+s.Probed, rated+s.Rated
		turns, doomed, unblocked = turns+s.Turns, doomed+s.Doomed, unblocked+s.Unblocked
		slots, compared, cursors = slots+s.Slots, compared+s.Compared, cursors+s.Cursors
		typed, unparked = typed+s.Typed, unparked+s.Unparked
		children, saves, commits, late = children+s.Children, saves+s.Saves, commits+s.Commits, late+s.Late
		if s.Operated > 0 {
			operating++
			interrupted += s.Interrupted
		}
		if s.Violation != "" {
			t.Errorf("seed %d: %s\nreplay: %s", s.Seed, s.Violation, s.Replay())
		}
	}
	if len(seen) != o.Seeds {
		t.Errorf("%d seeds were simulated, want %d", len(seen), o.Seeds)
	}
	if operating < o.Seeds/10 || interrupted < o.Seeds/50 {
		t.Errorf("operations changed tasks in %d seeds, and %d janitors were killed meanwhile; want many more", operating, interrupted)
	}
	t.Logf("%d tasks were accepted and executed %d times; %d workers were fenced early, %d of them of live processes", tasks, started, early, excused)
	if pauses < o.Seeds/2 || blocked < o.Seeds/2 || released < o.Seeds/2 || expired < o.Seeds/10 {
		t.Errorf("%d pauses blocked %d tasks, %d were released, and %d are dead by their deadline; want many more", pauses, blocked, released, expired)
	}
	t.Logf("%d pauses blocked %d tasks, %d were released, and %d are dead by their deadline", pauses, blocked, released, expired)
	if limits < o.Seeds/2 || permitted < 3*o.Seeds {
		t.Errorf("%d limits gave permits to %d tasks; want many more", limits, permitted)
	}
	t.Logf("%d limits gave permits to %d tasks", limits, permitted)
	if tripped < o.Seeds/5 || probed < 2*tripped || rated < o.Seeds/20 {
		t.Errorf("%d breakers gave permits to %d probes, and a rate of faults was reached %d times; want many more", tripped, probed, rated)
	}
	t.Logf("%d breakers gave permits to %d probes, and a rate of faults was reached %d times", tripped, probed, rated)
	if turns < o.Seeds || doomed < o.Seeds/10 || unblocked < o.Seeds/10 {
		t.Errorf("%d ordered tasks started after they had waited, %d were doomed, and the person retried or archived %d; want many more", turns, doomed, unblocked)
	}
	if typed < o.Seeds || unparked < o.Seeds/10 {
		t.Errorf("%d tickets entered type queues, and %d waits for a handler ended; want many more", typed, unparked)
	}
	t.Logf("%d tickets entered type queues, and %d waits for a handler ended", typed, unparked)
	t.Logf("%d ordered tasks started after they had waited, %d were doomed, and the person retried or archived %d", turns, doomed, unblocked)
	if slots < 5*o.Seeds || compared < 5*o.Seeds || cursors < 10*o.Seeds {
		t.Errorf("%d tasks got slots, %d shares of two topics and %d cursors were compared; want many more", slots, compared, cursors)
	}
	t.Logf("%d tasks got slots, %d shares of two topics and %d cursors were compared", slots, compared, cursors)
	if children < o.Seeds || saves < o.Seeds || commits < o.Seeds/2 || late < o.Seeds/50 {
		t.Errorf("%d next tasks, %d checkpoints and %d successes of CompleteTx were stored, and %d late ones were refused; want many more", children, saves, commits, late)
	}
	t.Logf("%d next tasks, %d checkpoints and %d successes of CompleteTx were stored, and %d late ones were refused", children, saves, commits, late)
	t.Logf("operations changed tasks in %d seeds, and %d janitors were killed meanwhile", operating, interrupted)
}

// The simulation of a seed does not depend on earlier simulations in the same process.
func TestSeedsReplayExactly(t *testing.T) {
	o := build(t)
	n := slow.Pick(30, 60)
	o.Seeds, o.Processes = n, 1
	together := outcomes(t, o)
	o.Seed, o.Seeds, o.Processes = uint64(n/3), n-n/3, 4
	for seed, s := range outcomes(t, o) {
		if first := together[seed]; !s.Exact || s.Sum != first.Sum || s.Steps != first.Steps {
			t.Errorf("seed %d: sum %x after %d steps the first time, %x after %d steps the second time", seed, first.Sum, first.Steps, s.Sum, s.Steps)
		}
	}
}

func TestAFailingSeedIsMadeSmaller(t *testing.T) {
	slow.Skip(t)
	m := mutants[0]
	o := build(t, patch.Edit{File: m.file, Old: m.old, New: m.new})
	o.Seeds = 10
	for _, s := range outcomes(t, o) {
		if s.Violation == "" {
			continue
		}
		smaller := o
		smaller.Seed, smaller.Seeds, smaller.Without, smaller.StopFirst = s.Seed, 1, s.Without, true
		if outcomes(t, smaller)[s.Seed].Violation == "" {
			t.Errorf("seed %d fails, but not if %v is removed", s.Seed, s.Without)
		}
		if parts := len(NewPlan(s.Seed).Parts()); len(s.Without) < parts/2 {
			t.Errorf("seed %d: only %d of %d parts were removed", s.Seed, len(s.Without), parts)
		}
		return
	}
	t.Error("no seed failed")
}
