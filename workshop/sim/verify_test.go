package sim

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/workshop/sim/patch"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// newCleanPlan returns a plan without faults: three workers that are sometimes idle and sometimes full, with tasks that
// are short, long, delayed, deferred and retried.
func newCleanPlan(lasts time.Duration) Plan {
	r := rand.New(rand.NewPCG(1, 0x1f83d9abfb41bd6b))
	p := Plan{Seed: 1, Roles: []Role{Serve, Serve, Worker, Produce}, Lasts: lasts, Net: NetPlan{Usual: 5 * time.Millisecond}}
	for i := 0; ; i++ {
		at := time.Duration(i) * 2 * time.Second
		if at > lasts-time.Minute {
			return p
		}
		count := 1
		if i%100 == 50 { // more than the workers can take, so that tickets wait and are passed on
			count = 60
		}
		for n := range count {
			task := newTask(r, i)
			task.Name, task.At, task.By, task.Poison, task.Stubborn = fmt.Sprint("t", i, "n", n), at, len(p.Roles)-1, false, false
			if count > 1 {
				task.Takes = between(r, time.Second, 8*time.Second)
			}
			p.Tasks = append(p.Tasks, task)
		}
	}
}

// While nothing goes wrong, the checks find nothing. The workers are idle and full in turn.
func TestCleanHourShowsNoFault(t *testing.T) {
	lasts := time.Duration(slow.Pick(10, 60)) * time.Minute
	result := Run(t, newCleanPlan(lasts), false)
	if result.Violation != "" {
		t.Fatal(result)
	}
	if least := int(lasts / time.Minute); result.Checks < least {
		t.Errorf("%d results of checks in %s, want at least %d", result.Checks, result.Lasted, least)
	}
	t.Logf("%s; %d results of checks", result, result.Checks)
}

// A clean hour reveals a wrong check.
func TestCleanHourNoticesMistakes(t *testing.T) {
	slow.Skip(t)
	for _, m := range []mutant{
		{"a ticket that waits is called lost", "store/memory/verify.go",
			"task.TicketedAt.Before(ago(proved, margin)) && !s.Full()", "(margin > 0 || !proved.IsZero())", nil},
		{"a task of a live worker is called a zombie", "store/memory/verify.go",
			"case worker.LeaseUntil.Before(limit):", "case worker.LeaseUntil.After(limit):", []patch.Edit{
				{File: "janitor/verify.go", Old: "Confirm: max(10*time.Second, 2*j.quietPeriod())", New: "Confirm: time.Millisecond"},
			}},
	} {
		t.Run(m.name, func(t *testing.T) {
			o := build(t, append(m.also, patch.Edit{File: m.file, Old: m.old, New: m.new})...)
			out, err := exec.Command(filepath.Join(o.Work, "sim.test"), "-test.run", "^TestCleanHourShowsNoFault$").CombinedOutput()
			if err == nil || !strings.Contains(string(out), "although nothing went wrong") {
				t.Errorf("not noticed: %v, %s", err, out)
			}
		})
	}
}
