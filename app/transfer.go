package app

import (
	"context"
	"errors"
	"io"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/transfer"
)

// Export writes every task of the configured store as lines of JSON; see transfer.Export.
func Export(ctx context.Context, cfg configs.Config, log logrus.FieldLogger, to io.Writer) (totals transfer.Totals, err error) {
	b, err := openChecked(ctx, cfg, log, false)
	if err != nil {
		return transfer.Totals{}, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	return transfer.Export(ctx, b.Store.(transfer.Store), to)
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
