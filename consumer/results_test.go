package consumer

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
)

// Groups have each result once, in the order in which results were added. No group has too many results. The reports of
// a group exceed their limit by at most one. The memory of a written group is used again only when no code refers to
// the group.
func TestResultsStayInTheirGroups(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := newResults()
		type takenGroup struct {
			group
			first int // number of the first result in the group
		}
		var inProgress []*takenGroup
		added, taken := 0, 0
		report := strings.Repeat("x", maxGroupBytes/3)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for _, g := range inProgress {
					for i := range g.jobs {
						if want := holdfast.TaskID(g.first + i); g.jobs[i].task.ID != want || g.moves[i].Task != want {
							t.Fatalf("result %d of a group has job %s and transition %s, want %s", i, g.jobs[i].task.ID, g.moves[i].Task, want)
						}
					}
				}
			},
			"add": func(t *rapid.T) {
				large := rapid.Bool().Draw(t, "large")
				n := rapid.IntRange(1, 2*maxGroupResults).Draw(t, "results")
				if large {
					n = min(n, 9)
				}
				for range n {
					added++
					move := holdfast.Transition{Task: holdfast.TaskID(added)}
					if large {
						move.Report.Stack = report
					}
					r.expect()
					r.add(jobFor(added), &move)
				}
			},
			"take": func(t *rapid.T) {
				g := r.take()
				if g.size() == 0 {
					if taken < added {
						t.Fatalf("%d of %d results were taken, and no result waits", taken, added)
					}
					return
				}
				bytes := 0
				for i := range g.moves[:g.size()-1] {
					bytes += len(g.moves[i].Report.Stack)
				}
				if g.size() > maxGroupResults || bytes > maxGroupBytes {
					t.Fatalf("a group has %d results, and %d bytes of reports before the last one", g.size(), bytes)
				}
				inProgress = append(inProgress, &takenGroup{g, taken + 1})
				taken += g.size()
			},
			"write": func(t *rapid.T) {
				if g := draw(t, &inProgress); g != nil {
					r.written(g.size())
					r.reuse(g.group)
				}
			},
		})
		for g := r.take(); g.size() > 0; g = r.take() {
			inProgress, taken = append(inProgress, &takenGroup{g, taken + 1}), taken+g.size()
		}
		for _, g := range inProgress {
			r.written(g.size())
		}
		<-r.drained()
		if taken != added {
			t.Fatalf("%d of %d results were taken", taken, added)
		}
	})
}
