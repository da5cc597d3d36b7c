package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

func sortFlag() []cli.Flag {
	return []cli.Flag{&cli.StringFlag{Name: "sort", Usage: "sort the list by `COLUMN`, or in reverse order by -COLUMN"}}
}

// sorted returns items in the order of the column that --sort names. The sort is stable.
func sorted[T any](c *cli.Context, items []T, columns []column[T]) ([]T, error) {
	name := c.String("sort")
	if name == "" && !c.IsSet("sort") {
		return items, nil
	}
	head, reverse := strings.CutPrefix(strings.ToLower(name), "-")
	var heads []string
	for _, col := range columns {
		heads = append(heads, col.head)
	}
	i := slices.Index(heads, head)
	if i < 0 {
		return nil, usageOf(commandName(c), "unknown column %q; use %s", head, strings.Join(heads, ", "))
	}
	items = slices.Clone(items)
	slices.SortStableFunc(items, func(a, b T) int {
		order := compareCells(columns[i].cell(a), columns[i].cell(b))
		if reverse {
			return -order
		}
		return order
	})
	return items, nil
}

// listTop writes the first limit of items like list, in the order of --sort. read reads so many items, and most is how
// many a list with --sort reads.
func listTop[T any](t *tool, c *cli.Context, name string, limit, most int, none string, read func(int) ([]T, error), columns ...column[T]) error {
	n := limit + 1
	if c.IsSet("sort") {
		n = most + 1
	}
	items, err := read(n)
	if err != nil {
		return err
	}
	if items, err = sorted(c, items, columns); err != nil {
		return err
	}
	if err := list(t, c, name, items[:min(len(items), limit)], none, columns...); err != nil {
		return err
	}
	if len(items) > limit {
		t.say("there are more %s; to see them, give a higher --limit", name)
	}
	return nil
}

// compareCells compares two cells of a column. It compares durations by length, texts that begin with a number by that
// number, and all others as texts.
func compareCells(a, b string) int {
	if x, y, ok := parseBoth(time.ParseDuration, a, b); ok {
		return cmp.Compare(x, y)
	}
	if x, y, ok := parseBoth(leadingNumber, a, b); ok && x != y {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a, b)
}

// leadingNumber parses the number at the beginning of a text.
func leadingNumber(text string) (n int64, err error) {
	_, err = fmt.Sscanf(text, "%d", &n)
	return n, err
}

// parseBoth parses two texts. ok reports whether both were valid.
func parseBoth[V any](parse func(string) (V, error), a, b string) (x, y V, ok bool) {
	x, errA := parse(a)
	y, errB := parse(b)
	return x, y, errA == nil && errB == nil
}
