package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

func TestShardJobs(t *testing.T) {
	t.Parallel()
	job := func(name string, change func(*store.Plan)) store.Plan {
		p := plan.ShardJob{Type: "scan", Zones: map[string]string{"0": "a"}}.Plan(name, time.Now())
		p.Progress = []byte("{}") // as the store does
		change(&p)
		return p
	}
	healthy := job("a", func(*store.Plan) {})
	failing := job("b", func(p *store.Plan) { p.Failures, p.Failure = 1, "no such queue" })
	newer := job("c", func(p *store.Plan) { p.Spec = []byte(`{"weekday": "monday"}`) })
	for want, plans := range map[string][]store.Plan{
		"ok 1 shard job is stored, and none fails":                                                          {healthy},
		"failed the steps of 1 shard job fail: b; the first because of: no such queue (1 failure in a row)": {healthy, failing},
		"warning a newer version has stored 1 shard job: c":                                                 {healthy, newer},
	} {
		e := &examination{store: &storeDouble{&world{plans: plans}}}
		e.examineShardJobs(t.Context())
		var lines []string
		for _, c := range e.Checks {
			lines = append(lines, fmt.Sprint(c.Severity, " ", c.Detail))
		}
		if got := strings.Join(lines, "\n"); got != want {
			t.Errorf("%s, want: %s", got, want)
		}
	}
}
