package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// The functions of this file return the actions of the verbs that most nouns have. T is a record, F its JSON form, and K
// its id or its name.

// one is the part of a request that names a record.
type one[K any] struct {
	ID K `arg:"0"`
}

// lists returns an action that prints a page of records. The other texts are those of printPage.
func lists[F, T, C, R any](
	t *tool, name, none, more string, columns []column[F], read func(context.Context, *app.Backend, R) ([]surface.Listed[F, T], *C, error),
) action {
	return reads(t, openCheckedStore, func(ctx context.Context, c *cli.Context, b *app.Backend, r R) error {
		found, next, err := read(ctx, b, r)
		if err != nil {
			return err
		}
		return printPage(t, c, name, surface.Each(found, surface.FormOf), next, none, more, columns...)
	})
}

// gets returns an action that prints a record. see is the hint if there is none.
func gets[K, F, T any](t *tool, see string, read func(context.Context, *app.Backend, K) (F, T, error), describe func(F, T) error) action {
	return reads(t, openCheckedStore, func(ctx context.Context, c *cli.Context, b *app.Backend, r one[K]) error {
		form, record, err := read(ctx, b, r.ID)
		if err != nil {
			return notFound(err, see)
		}
		return printItem(t, c, form, func() error { return describe(form, record) })
	})
}

// alters returns an action that changes a record, and prints it as a line of the list unless there are no columns. said
// and hint are formats with the name of the record: what has happened, and the next command, which may be "".
func alters[K, F, T any](
	t *tool, see, said, hint string, change func(*app.Backend, context.Context, store.Actor, K, ...func(*T) error) (before *T, after T, err error),
	form func(T) F, columns ...column[F],
) action {
	return changes(t, openCheckedStore, func(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r one[K]) error {
		_, after, err := change(b, ctx, by, r.ID)
		if err != nil {
			return notFound(err, see)
		}
		t.say(said, r.ID)
		if hint != "" {
			t.hint(fmt.Sprintf(hint, r.ID))
		}
		return stored(printItem(t, c, form(after), func() error {
			if len(columns) == 0 {
				return nil
			}
			return printTable(t, []F{form(after)}, "", columns)
		}), said, r.ID)
	})
}
