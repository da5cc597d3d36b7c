package app

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/janitor"
	"github.com/holdfastq/holdfast/store"
)

// VerifyConfirm returns the time between the two looks of VerifyTasks at a fault.
func (b *Backend) VerifyConfirm() time.Duration {
	return max(10*time.Second, 2*(b.Config.Worker.Lease+b.Config.Janitor.FenceGrace))
}

// VerifyTasks checks all tasks, as a janitor does in many small parts, and stores the result; see janitor.Verify. It
// calls progress after each step.
func (b *Backend) VerifyTasks(ctx context.Context, progress func(part store.VerifyPart, through holdfast.TaskID)) (janitor.VerifyReport, error) {
	return janitor.Verify(ctx, b.Store, janitor.VerifyOptions{
		Limits: store.VerifyLimits{Slack: b.Config.Janitor.SentinelSlack}, Confirm: b.VerifyConfirm(), Progress: progress,
	})
}

// Rebuild declares the objects that are missing in the broker, as a janitor does, and returns their names. It returns
// an ErrConflict that names an AMQP queue if the queue exists with other arguments. In that case it has declared the
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

// errEmbeddedRecovery is the error of recoveries on the embedded backend.
func (b *Backend) errEmbeddedRecovery() error {
	return fmt.Errorf("%w: the broker of %s is in the memory of the process that serves it, which publishes a ticket for every waiting task when it starts",
		holdfast.ErrConflict, b.file.store.Path())
}

// PlanRecovery returns what the broker has lost; see janitor.PlanRecovery. The embedded broker has nothing to recover:
// then PlanRecovery returns an ErrConflict that says why.
func (b *Backend) PlanRecovery(ctx context.Context, purged []string) (janitor.RecoveryPlan, error) {
	if b.file != nil {
		return janitor.RecoveryPlan{}, b.errEmbeddedRecovery()
	}
	return janitor.PlanRecovery(ctx, b.Store, b.Broker, b.Topology, purged)
}

// Recover does at once what running janitors do after the broker has lost its data; see janitor.Recover. Errors are also
// those of PlanRecovery.
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
