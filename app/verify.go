package app

import (
	"context"
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
