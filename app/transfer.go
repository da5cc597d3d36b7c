package app

import (
	"context"
	"errors"
	"io"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/transfer"
	"github.com/holdfastq/holdfast/store"
)

// maxLeftOut is the highest number of schedules, of sources, of shard jobs and of open batches that Export reports.
const maxLeftOut = 1000

// Export writes every task of the configured store as lines of JSON; see transfer.Export. It also returns the number of
// schedules, sources, shard jobs and open batches, which it leaves out, at most 1,000 of each.
func Export(ctx context.Context, cfg configs.Config, log logrus.FieldLogger, to io.Writer) (totals transfer.Totals, leftOut int, err error) {
	b, err := openChecked(ctx, cfg, log, false)
	if err != nil {
		return transfer.Totals{}, 0, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	for _, kind := range []store.PlanKind{store.ScheduleKind, store.SourceKind, store.ShardKind, store.BatchKind} {
		found, err := b.Store.ListPlans(ctx, store.PlanFilter{Kind: kind, Limit: maxLeftOut})
		if err != nil {
			return transfer.Totals{}, 0, err
		}
		leftOut += len(found)
	}
	totals, err = transfer.Export(ctx, b.Store.(transfer.Store), to)
	return totals, leftOut, err
}

// Import stores the tasks of an export in the configured store; see transfer.Import. Like Open, it creates and migrates
// the file of the embedded backend if necessary.
func Import(ctx context.Context, cfg configs.Config, log logrus.FieldLogger, from io.Reader) (imported transfer.Imported, err error) {
	b, err := openChecked(ctx, cfg, log, true)
	if err != nil {
		return transfer.Imported{}, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return transfer.Import(ctx, b.Store.(transfer.Store), from)
}
