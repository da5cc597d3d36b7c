package app

import (
	"context"
	"fmt"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/janitor"
)

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
