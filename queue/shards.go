package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/plan"
	"github.com/holdfastq/holdfast/store"
)

// The causes with which the context of a pass ends.
var (
	// ErrMapChanged means that the shard map has changed since the pass began.
	ErrMapChanged = plan.ErrMapChanged
	// ErrPassReplaced means that the zone has a newer pass. The pass was dead or cancelled, and a person has retried it.
	ErrPassReplaced = plan.ErrPassReplaced
)

// outdated returns the error of err that means that a pass must end, or nil.
func outdated(err error) error {
	for _, reason := range []error{ErrMapChanged, ErrPassReplaced} {
		if errors.Is(err, reason) {
			return reason
		}
	}
	return nil
}

// Pass is one run of a shard job in a zone. It has the shard map and the offsets of the time at which it began. It is
// not safe for concurrent use.
type Pass struct {
	Job  string
	Zone string

	pass *plan.Pass
	end  context.CancelCauseFunc // ends the context of the handler
}

// Shards returns the shards of the zone in the order of their names.
func (p *Pass) Shards() []string { return p.pass.Shards() }

// Owns reports whether the zone has a shard. The handler must leave out the items of all other shards.
func (p *Pass) Owns(shard string) bool { return p.pass.Owns(shard) }

// Offset returns the lowest offset of the shards of the zone. The handler reads the items after it. The items up to it
// are done in all of these shards.
func (p *Pass) Offset() int64 { return p.pass.Offset() }

// OffsetOf returns the offset of a shard of the zone. It returns 0 if the zone does not have the shard.
func (p *Pass) OffsetOf(shard string) int64 { return p.pass.OffsetOf(shard) }

// Save stores that the items up to the offset are done in all shards of the zone. The offset of a shard never
// decreases.
//
// Save returns ErrMapChanged if the shard map has changed, ErrPassReplaced if the zone has a newer pass, and
// holdfast.ErrLeaseLost if the attempt does not run any more. It then stores nothing, and the context of the pass ends.
func (p *Pass) Save(ctx context.Context, offset int64) error {
	err := p.pass.Save(ctx, offset)
	reason := cmp.Or(outdated(err), outdated(context.Cause(ctx)))
	switch {
	case err == nil:
		return nil
	case reason != nil:
		err = reason
		p.end(err)
	case errors.Is(err, store.ErrFenced):
		err = fmt.Errorf("%w: %w", holdfast.ErrLeaseLost, err)
		p.end(err)
	}
	return fmt.Errorf("save offset %d of shard job %s: %w", offset, p.Job, err)
}

// passCheck is the time between two reads of the shard map by a pass.
const passCheck = time.Second

// watch ends the pass if the shard map changes or the zone has a newer pass. It returns when ctx ends.
func (p *Pass) watch(ctx context.Context) {
	tick := time.NewTicker(passCheck)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			// If the store cannot answer, the pass goes on. Save refuses the offset of an old map.
			if reason := outdated(p.pass.Check(ctx)); reason != nil {
				p.end(reason)
			}
		}
	}
}

// HandleShards registers handle for the passes of shard jobs of a type. See [Handle] for the options and errors. Each
// zone of a job has one pass at a time. Its task is in the queue that has the name of the zone; a worker for one zone
// has the option [Queues].
//
// handle reads the items after pass.Offset, handles those for which pass.Owns is true, and calls pass.Save. An item can
// run again, so its work must be idempotent. If handle returns nil, the pass has ended, and the job decides when the
// next one begins.
//
// If the shard map changes, ctx ends within about a second with the cause [ErrMapChanged]. Whatever handle then
// returns, the attempt uses up no attempt, and the next one gets the new shard map. It counts as a deferral. If the
// zone has no shards any more, or if the job has been deleted, the task is done. If a person retries an ended pass
// although the zone has a newer one, ctx ends with the cause [ErrPassReplaced], and the task is done. A task that is no
// pass is dead at once.
func HandleShards(c *Client, taskType string, handle func(ctx context.Context, pass *Pass) error, opts ...TypeOption) error {
	if handle == nil {
		return Handle[plan.PassPayload](c, taskType, nil, opts...)
	}
	return Handle(c, taskType, func(ctx context.Context, task holdfast.Task, payload plan.PassPayload) error {
		if payload.Job == "" || payload.Zone == "" {
			return holdfast.Permanent(fmt.Errorf("%w: the payload is no pass of a shard job", holdfast.ErrInvalid))
		}
		return c.runPass(ctx, task, payload, handle)
	}, opts...)
}

// runPass calls handle for an attempt of a pass.
func (c *Client) runPass(ctx context.Context, task holdfast.Task, payload plan.PassPayload, handle func(ctx context.Context, pass *Pass) error) error {
	begun, err := c.beginPass(ctx, task, payload)
	if begun == nil || err != nil {
		return err
	}
	passCtx, end := context.WithCancelCause(ctx)
	pass := &Pass{Job: begun.Job, Zone: begun.Zone, pass: begun, end: end}
	var watching sync.WaitGroup
	defer watching.Wait() // also if handle panics
	defer end(nil)
	watching.Go(func() { pass.watch(passCtx) })
	err = handle(passCtx, pass)
	reason := outdated(context.Cause(passCtx))
	if reason == nil {
		return err
	}
	// The workers of a zone that has been drained may end soon, so its task must not wait for another attempt.
	if next, err := c.beginPass(ctx, task, payload); next == nil && err == nil {
		return nil
	}
	return holdfast.Defer(0, reason)
}

// beginPass returns the pass of an attempt. It returns nil if the zone has no shards or a newer pass, or if there is no
// such job.
func (c *Client) beginPass(ctx context.Context, task holdfast.Task, payload plan.PassPayload) (*plan.Pass, error) {
	pass, err := plan.BeginPass(ctx, c.backend.Store, payload, task)
	switch {
	case errors.Is(err, holdfast.ErrNotFound), errors.Is(err, ErrPassReplaced):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("begin a pass of shard job %s: %w", payload.Job, err)
	case len(pass.Shards()) == 0:
		return nil, nil
	}
	return pass, nil
}

// ShardJob declares a job over data that zones own by shard; see [Client.SetShardJob].
type ShardJob struct {
	Name        string            // letters, digits and . _ -
	Type        string            // of the tasks; see HandleShards
	Every       time.Duration     // from the begin of a pass to the next one; 0: the next one begins at once
	MaxAttempts int               // of a pass; 0: that of the type
	Note        string            // for the people who operate the job
	Zones       map[string]string // the zone of each shard, which is the name of its queue; only for a new job
}

// SetShardJob stores a shard job, or changes the stored one with its name. A program calls it at each start. Any
// process with a janitor then stores the tasks of the passes, one at a time in each zone that has shards.
//
// The shard map of a stored job stays, because people move shards while programs run; see [Client.MoveShard] and
// [Client.DrainZone]. All other fields replace the stored ones. If nothing differs, SetShardJob writes nothing. It
// returns ErrInvalid if the declaration is wrong.
func (c *Client) SetShardJob(ctx context.Context, job ShardJob) error {
	b, err := c.openBackend()
	if err != nil {
		return err
	}
	spec := plan.ShardJob{Type: job.Type, Every: plan.Duration(job.Every), Attempts: job.MaxAttempts, Note: job.Note, Zones: job.Zones}
	if err = spec.Validate(); err == nil {
		_, _, err = b.SetShardJob(ctx, by(""), job.Name, spec)
	}
	if err != nil {
		return fmt.Errorf("shard job %.100s: %w", job.Name, err)
	}
	return nil
}

// MoveShard moves a shard of a job to another zone, which may be new. The passes that run end within about a second,
// and save no more offsets. The shard keeps its offset, from which its new zone goes on. MoveShard returns ErrNotFound
// if there is no such job or shard, and ErrInvalid if the name of the zone is wrong.
func (c *Client) MoveShard(ctx context.Context, job, shard, zone, reason string) error {
	b, err := c.openBackend()
	if err != nil {
		return err
	}
	_, _, err = b.MoveShard(ctx, by(reason), job, shard, zone)
	return err
}

// DrainZone moves all shards of a zone of a job to its other zones as MoveShard does, each to the zone with the fewest
// shards. It returns ErrNotFound if there is no such job, and ErrInvalid if the zone has no shards or is the only zone.
func (c *Client) DrainZone(ctx context.Context, job, zone, reason string) error {
	b, err := c.openBackend()
	if err != nil {
		return err
	}
	_, _, err = b.DrainZone(ctx, by(reason), job, zone)
	return err
}
