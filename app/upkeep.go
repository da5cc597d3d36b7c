package app

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/store"
)

// verifyConfirm returns the time between the two checks of a fault by VerifyTasks.
func (b *Backend) verifyConfirm() time.Duration {
	return max(10*time.Second, 2*(b.Config.Worker.Lease+janitor.FenceGrace))
}

// VerifyTasks checks all tasks and stores the result; see janitor.Verify. It calls progress, if it is not nil, after
// each step.
func (b *Backend) VerifyTasks(ctx context.Context, progress func(part store.VerifyPart, through holdfast.TaskID)) (janitor.VerifyReport, error) {
	return janitor.Verify(ctx, b.Store, janitor.VerifyOptions{
		Limits: store.VerifyLimits{Slack: janitor.SentinelSlack}, Confirm: b.verifyConfirm(), Progress: progress,
	})
}

// Rebuild declares the objects that are missing in the broker, as a janitor does, and returns their names. If an AMQP
// queue exists with other arguments, it returns an ErrConflict that names the queue. In that case it has declared the
// missing objects, unless the marker is missing too.
func (b *Backend) Rebuild(ctx context.Context) (missing []string, err error) {
	if missing, _, err = janitor.Rebuild(ctx, b.Store, b.Broker, b.Topology); err != nil {
		return missing, err
	}
	queues, err := b.Store.QueueNames(ctx)
	if err != nil {
		return missing, err
	}
	err = b.Topology.Declare(ctx, b.Broker, queues) // everything exists, so this only compares arguments
	return missing, err
}

// errEmbeddedRecovery returns the error of a recovery on the embedded backend.
func (b *Backend) errEmbeddedRecovery() error {
	return fmt.Errorf("%w: the broker of %s is in the memory of the process that serves it, which publishes a ticket for every waiting task when it starts",
		holdfast.ErrConflict, b.file.store.Path())
}

// PlanRecovery returns what the broker has lost; see janitor.PlanRecovery. For the embedded broker, which has nothing
// to recover, it returns an ErrConflict that says why.
func (b *Backend) PlanRecovery(ctx context.Context, purged []string) (janitor.RecoveryPlan, error) {
	if b.file != nil {
		return janitor.RecoveryPlan{}, b.errEmbeddedRecovery()
	}
	return janitor.PlanRecovery(ctx, b.Store, b.Broker, b.Topology, purged)
}

// Recover does at once what running janitors do after the broker has lost its data; see janitor.Recover. It has the
// errors of PlanRecovery too.
func (b *Backend) Recover(ctx context.Context, purged []string, progress func(janitor.RecoveryProgress)) (janitor.RecoveryReport, error) {
	if b.file != nil {
		return janitor.RecoveryReport{}, b.errEmbeddedRecovery()
	}
	j, err := newJanitor(ServeOptions{Backend: b})
	if err != nil {
		return janitor.RecoveryReport{}, err
	}
	return j.Recover(ctx, purged, progress)
}
