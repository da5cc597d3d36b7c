package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
)

// upload is the input of a batch: the path of a sheet, where all workers can read it.
type upload struct{ Sheet string }

// row is the payload of a subtask.
type row struct {
	Number int
	Cells  []string // sku, name, price
}

// handle registers the three functions of the batch. If that fails, Run returns the error. The results are written to a
// folder.
func handle(q *queue.Client, s *shop, folder string) {
	reduce := func(ctx context.Context, rows *queue.Results[row, int]) (any, error) {
		return reduce(ctx, rows, folder)
	}
	_ = queue.HandleBatch(q, "register", queue.Batch[upload, row, int]{Split: split, Map: s.register, Reduce: reduce},
		queue.Backoff(50*time.Millisecond, time.Second))
}

// split adds a subtask for each row of the sheet. The cursor is the number of a row.
func split(ctx context.Context, u upload, to *queue.Split[row]) error {
	last, _ := strconv.Atoi(to.Cursor())
	for r, err := range rows(u.Sheet) {
		if err != nil {
			return holdfast.Permanent(err) // the next attempt would read the same file
		}
		if r.Number <= last {
			continue
		}
		if err := to.Add(ctx, r, strconv.Itoa(r.Number)); err != nil {
			return err
		}
	}
	return nil
}

// reduce writes the rows with their outcomes to a sheet, and returns its path. It replaces a sheet that an earlier
// attempt has written.
func reduce(ctx context.Context, rows *queue.Results[row, int], folder string) (any, error) {
	var outcomes []outcome
	for r, err := range rows.All(ctx) {
		if err != nil {
			return nil, err
		}
		o := outcome{row: r.Payload, text: fmt.Sprintf("registered as product %d", r.Output)}
		if r.Task.State != holdfast.Done {
			o.text = r.Task.LastError
		}
		outcomes = append(outcomes, o)
	}
	path := filepath.Join(folder, fmt.Sprintf("result-%s.xlsx", rows.ID()))
	return path, writeResult(path, outcomes)
}

// shop registers products. A real one has a table of products in which the sku is unique.
type shop struct {
	mu    sync.Mutex
	rows  map[string]int // by sku
	calls int
}

// register checks a row and registers its product, and returns the number of the product. A row that is registered
// again has the same number.
func (s *shop) register(_ context.Context, _ holdfast.Task, r row) (product int, err error) {
	sku, price := r.Cells[0], r.Cells[2]
	amount, err := strconv.ParseFloat(price, 64)
	switch {
	case sku == "":
		return 0, holdfast.Permanent(errors.New("the sku is missing"))
	case strings.TrimSpace(r.Cells[1]) == "":
		return 0, holdfast.Permanent(errors.New("the name is missing"))
	case err != nil || amount <= 0:
		return 0, holdfast.Permanent(fmt.Errorf("the price %q is not a positive number", price))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.calls%7 == 0 {
		return 0, errors.New("the shop is busy") // the row is tried again
	}
	if first, taken := s.rows[sku]; taken && first != r.Number {
		return 0, holdfast.Permanent(fmt.Errorf("the sku %s is that of row %d too", sku, first))
	}
	s.rows[sku] = r.Number
	return 1000 + r.Number, nil
}
