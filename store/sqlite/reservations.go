package sqlite

import "sync"

// reservations are the rows that calls of this store have in their hands, so that no two of them get the same. They
// are kept in memory: a row that is being published must not hold the lock of the file.
type reservations struct {
	mu    sync.Mutex
	taken map[int64]bool
}

// reserve calls find with the number of rows that are taken, and returns those of its rows that are not, at most limit;
// they are taken now. Nobody else reserves meanwhile, so what find reads has not become free since.
func reserve[Row any](r *reservations, limit int, find func(taken int) ([]Row, error), id func(Row) int64) ([]Row, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	rows, err := find(len(r.taken))
	if err != nil {
		return nil, err
	}
	if r.taken == nil {
		r.taken = make(map[int64]bool)
	}
	free := make([]Row, 0, min(len(rows), limit))
	for _, row := range rows {
		if len(free) < limit && !r.taken[id(row)] {
			r.taken[id(row)] = true
			free = append(free, row)
		}
	}
	return free, nil
}

// release gives rows back.
func release[Row any](r *reservations, rows []Row, id func(Row) int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, row := range rows {
		delete(r.taken, id(row))
	}
}
