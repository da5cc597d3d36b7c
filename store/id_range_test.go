package store_test

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

func TestStoredIDs(t *testing.T) {
	t.Parallel()
	tasks := func(ids ...holdfast.TaskID) (list []store.InsertedTask) {
		for _, id := range ids {
			list = append(list, store.InsertedTask{ID: max(id, -id), Duplicate: id < 0})
		}
		return list
	}
	for _, c := range []struct {
		tasks []store.InsertedTask
		want  string
	}{
		{nil, `null`},
		{tasks(-7), `null`},
		{tasks(7), `["7"]`},
		{tasks(7, 8, 9), `["7..9"]`},
		{tasks(7, -8, 9), `["7","9"]`},
		{tasks(12, 3, 4, 10, 11, 1), `["1","3..4","10..12"]`},
		{tasks(math.MaxInt64, math.MaxInt64-1), `["9223372036854775806..9223372036854775807"]`},
	} {
		ranges := store.StoredIDs(c.tasks)
		text, err := json.Marshal(ranges)
		if err != nil || string(text) != c.want {
			t.Errorf("%v: %s, %v; want %s", c.tasks, text, err, c.want)
		}
		var read []store.IDRange
		if err := json.Unmarshal(text, &read); err != nil || !slices.Equal(read, ranges) {
			t.Errorf("%s is read as %v, %v", text, read, err)
		}
		size := int64(0)
		for _, r := range ranges {
			size += r.Size()
		}
		if want := len(slices.DeleteFunc(c.tasks, func(task store.InsertedTask) bool { return task.Duplicate })); size != int64(want) {
			t.Errorf("%s has %d ids, want %d", text, size, want)
		}
	}
	for _, text := range []string{``, `0`, `1..`, `..2`, `2..1`, `1...2`, `-1..2`, `x`} {
		if err := new(store.IDRange).UnmarshalText([]byte(text)); !errors.Is(err, holdfast.ErrInvalid) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
