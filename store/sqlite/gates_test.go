package sqlite_test

import "testing"

// Workers reports a worker that a build without gates has registered.
func TestWorkersWithoutGates(t *testing.T) {
	t.Parallel()
	s := open(t)
	worker := registerWorker(t, s)
	change(t, s, "update workers set gates = null where id = ?1", int64(worker))
	registerWorker(t, s)
	workers, err := s.Workers(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range workers {
		if w.Gateless != (w.ID == worker) {
			t.Errorf("worker %s: gateless is %t", w.ID, w.Gateless)
		}
	}
}
