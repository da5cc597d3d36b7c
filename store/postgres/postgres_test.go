package postgres_test

import (
	"testing"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres/pgtest"
	"github.com/holdfastq/holdfast/store/storetest"
)

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) store.Store { return pgtest.Open(t) })
}

func TestExaminer(t *testing.T) {
	t.Parallel()
	storetest.RunExaminer(t, func(t *testing.T) storetest.Examinable { return pgtest.Open(t) })
}
