package explain_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/explain"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// shardSource is a source with a shard job.
type shardSource struct {
	source
	job store.Plan
}

func (s *shardSource) PlanByName(_ context.Context, kind store.PlanKind, name string) (store.Plan, error) {
	if kind != s.job.Kind || name != s.job.Name {
		return store.Plan{}, fmt.Errorf("%w: no plan", holdfast.ErrNotFound)
	}
	return s.job, nil
}

// An explanation names the shard job and the zone of a pass, and claims nothing about a key that only looks like one.
func TestPassOfATask(t *testing.T) {
	t.Parallel()
	job := plan.ShardJob{Type: "scan", Zones: map[string]string{"0": "oslo", "1": "oslo", "2": "rome"}}.Plan("scan", now)
	job.Progress = []byte("{}")
	newer := job
	newer.Spec = []byte(`{"weekday": 1}`)
	const key = "shard/scan/%s/2030-01-30T02:30:00.000000Z"
	for name, c := range map[string]struct {
		job    store.Plan
		unique string
		want   string // "" if the explanation has no pass
	}{
		"no key":          {job, "", ""},
		"a similar key":   {job, "shard/scan/oslo/soon", ""},
		"a pass":          {job, fmt.Sprintf(key, "oslo"), "a pass of the shard job scan in the zone oslo; the zone has 2 shards"},
		"a drained zone":  {job, fmt.Sprintf(key, "bern"), "a pass of the shard job scan in the zone bern; the zone has no shards any more"},
		"a newer version": {newer, fmt.Sprintf(key, "oslo"), "a pass of the shard job scan in the zone oslo; a newer version has stored the job"},
		"no job":          {store.Plan{}, fmt.Sprintf(key, "oslo"), "its unique key names the shard job scan, which does not exist, or does not exist any more"},
	} {
		e, err := explain.Read(t.Context(), &shardSource{source{unique: c.unique}, c.job}, 7, holdfast.Settings{}, store.PruneAges{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if e.Pass == nil {
			e.Pass = &explain.Pass{}
		}
		if e.Pass.Text != c.want || e.Schedule != nil {
			t.Errorf("%s: %+v, want %q", name, e.Pass, c.want)
		}
	}
}
