package storetest

import (
	"errors"
	"sync"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

var migrationTests = []test{
	{"go down and up again", testMigrateDownAndUp},
	{"may be called by many", testMigrateConcurrently},
	{"make one incarnation", testIncarnation},
}

func testMigrateDownAndUp(s *suite) {
	s.must(s.CheckSchema(s.ctx))
	known := s.status(true)
	for i := len(known) - 1; i >= 0; i-- {
		down, err := s.MigrateDown(s.ctx)
		s.must(err)
		if down.Version != known[i].Version || down.Name != known[i].Name || down.Applied {
			s.Errorf("taken back: %+v, want %+v", down, known[i])
		}
		if err := s.CheckSchema(s.ctx); !errors.Is(err, store.ErrSchema) {
			s.Errorf("without version %d: %v", known[i].Version, err)
		}
	}
	if _, err := s.MigrateDown(s.ctx); !errors.Is(err, holdfast.ErrNotFound) {
		s.Errorf("with nothing to take back: %v", err)
	}
	s.status(false)
	if _, err := s.Insert(s.ctx, []holdfast.NewTask{newTask()}, 0); !errors.Is(err, store.ErrSchema) {
		s.Errorf("an insert without tables: %v", err)
	}
	up, err := s.MigrateUp(s.ctx)
	s.must(err)
	if len(up) != len(known) {
		s.Errorf("applied %v, want %v", up, known)
	}
	if up, err = s.MigrateUp(s.ctx); err != nil || len(up) > 0 {
		s.Errorf("applied again %v, %v", up, err)
	}
	s.must(s.CheckSchema(s.ctx))
	s.status(true)
	s.insert(newTask())
	if names, err := s.LaneNames(s.ctx); err != nil || len(names) != 1 {
		s.Errorf("the lanes are %v, %v", names, err)
	}
}

// status checks that all versions are applied or none, and that they are in order.
func (s *suite) status(applied bool) []store.Migration {
	s.Helper()
	list, err := s.MigrationStatus(s.ctx)
	s.must(err)
	if len(list) == 0 {
		s.Fatal("there are no versions")
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
	if again, err := s.Incarnation(s.ctx); err != nil || again != first {
		s.Errorf("the incarnation was %s and is %s, %v", first, again, err)
	}
	for range s.status(true) {
		_, err := s.MigrateDown(s.ctx)
		s.must(err)
	}
	_, err = s.MigrateUp(s.ctx)
	s.must(err)
	if again, err := s.Incarnation(s.ctx); err != nil || again == first {
		s.Errorf("a new schema has the old incarnation %s, %v", again, err)
	}
}
