package explain

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// Pass is the pass of a shard job that a task runs, according to the unique key of the task.
type Pass struct {
	Job  string `json:"job"`
	Zone string `json:"zone"`
	// State is the state of the job. It is empty if the store has no such job: then a person has deleted it, or another
	// program has chosen the key.
	State  store.PlanState `json:"state,omitempty"`
	Shards int             `json:"shards"` // of the zone now
	Text   string          `json:"text"`
}

// readPass describes the pass of a task. It returns nil if the unique key of the task names none.
func readPass(ctx context.Context, s Source, task holdfast.Task) (*Pass, error) {
	job, zone, ok := plan.PassOrigin(task.Unique)
	if !ok {
		return nil, nil
	}
	pass := &Pass{Job: job, Zone: zone}
	p, err := s.PlanByName(ctx, store.ShardKind, job)
	if errors.Is(err, holdfast.ErrNotFound) {
		pass.Text = fmt.Sprintf("its unique key names the shard job %s, which does not exist, or does not exist any more", job)
		return pass, nil
	}
	if err != nil {
		return nil, err
	}
	pass.State = p.State
	pass.Text = fmt.Sprintf("a pass of the shard job %s in the zone %s", job, zone)
	spec, _, err := plan.ReadShardJob(p)
	switch pass.Shards = len(spec.Shards(zone)); {
	case err != nil:
		pass.Text += "; a newer version has stored the job"
	case pass.Shards == 0:
		pass.Text += "; the zone has no shards any more"
	default:
		pass.Text += fmt.Sprintf("; the zone has %s", count(pass.Shards, "shard"))
	}
	return pass, nil
}
