package storetest

import (
	"errors"
	"sync"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var migrationTests = []test{
	{"migrate down and up again", testMigrateDownAndUp},
	{"run once for concurrent callers", testMigrateConcurrently},
	{"create one incarnation", testIncarnation},
}

func testMigrateDownAndUp(s *suite) {
	s.must(s.CheckSchema(s.ctx))
	known := s.status(true)
	for i := len(known) - 1; i >= 0; i-- {
		down, err := s.MigrateDown(s.ctx)
		s.must(err)
		if down.Version != known[i].Version || down.Name != known[i].Name || down.Applied {
			s.Errorf("MigrateDown returned %+v, want %+v", down, known[i])
		}
		if err := s.CheckSchema(s.ctx); !errors.Is(err, store.ErrSchema) {
			s.Errorf("CheckSchema without version %d: %v, want ErrSchema", known[i].Version, err)
		}
	}
	if _, err := s.MigrateDown(s.ctx); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("MigrateDown without versions: %v, want ErrNotFound", err)
	}
	s.status(false)
	if _, err := s.Insert(s.ctx, []holdfast.NewTask{newTask()}, 0); !errors.Is(err, store.ErrSchema) {
		s.Errorf("Insert without tables: %v, want ErrSchema", err)
	}
	up, err := s.MigrateUp(s.ctx)
	s.must(err)
	if len(up) != len(known) {
		s.Errorf("MigrateUp returned %v, want %v", up, known)
	}
	if up, err = s.MigrateUp(s.ctx); err != nil || len(up) > 0 {
		s.Errorf("the second MigrateUp returned %v, %v; want no versions", up, err)
	}
	s.must(s.CheckSchema(s.ctx))
	s.status(true)
	s.insert(newTask())
	if names, err := s.QueueNames(s.ctx); err != nil || len(names) != 1 {
		s.Errorf("the queues are %v, %v", names, err)
	}
}

// status checks that all versions are applied, or none, and that they are in order. It returns the versions.
func (s *suite) status(applied bool) []store.Migration {
	s.Helper()
	list, err := s.MigrationStatus(s.ctx)
	s.must(err)
	if len(list) == 0 {
		s.Fatal("MigrationStatus returned no versions")
	}
	for i, migration := range list {
		if migration.Version != int64(i+1) || migration.Name == "" || migration.Applied != applied || migration.AppliedAt.IsZero() == applied {
			s.Errorf("version %d is %+v", i+1, migration)
		}
	}
	return list
}

func testMigrateConcurrently(s *suite) {
	known := s.status(true)
	for range known {
		_, err := s.MigrateDown(s.ctx)
		s.must(err)
	}
	var mu sync.Mutex
	applied := 0
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			up, err := s.MigrateUp(s.ctx)
			if err != nil {
				s.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			applied += len(up)
		})
	}
	group.Wait()
	if applied != len(known) {
		s.Errorf("%d versions were applied, want %d", applied, len(known))
	}
	s.must(s.CheckSchema(s.ctx))
}

func testIncarnation(s *suite) {
	first, err := s.Incarnation(s.ctx)
	s.must(err)
	if first == "" {
		s.Error("the incarnation is empty")
	}
	if second, err := s.Incarnation(s.ctx); err != nil || second != first {
		s.Errorf("the incarnation changed from %s to %s, %v", first, second, err)
	}
	for range s.status(true) {
		_, err := s.MigrateDown(s.ctx)
		s.must(err)
	}
	_, err = s.MigrateUp(s.ctx)
	s.must(err)
	if second, err := s.Incarnation(s.ctx); err != nil || second == first {
		s.Errorf("the incarnation of a new schema is %s, %v; want another one", second, err)
	}
}
