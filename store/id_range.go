package store

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfastq/holdfast"
)

// IDRange is a range of task ids, with both ends. In JSON it is a string: "42", or "100..199".
type IDRange struct{ First, Last holdfast.TaskID }

// Size returns the number of ids in the range.
func (r IDRange) Size() int64 { return int64(r.Last-r.First) + 1 }

// MarshalText implements encoding.TextMarshaler.
func (r IDRange) MarshalText() ([]byte, error) {
	if r.First == r.Last {
		return r.First.MarshalText()
	}
	return []byte(r.First.String() + ".." + r.Last.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *IDRange) UnmarshalText(text []byte) error {
	low, high, found := strings.Cut(string(text), "..")
	if !found {
		high = low
	}
	first, err := holdfast.ParseTaskID(low)
	if err != nil {
		return err
	}
	last, err := holdfast.ParseTaskID(high)
	if err != nil {
		return err
	}
	if last < first {
		return fmt.Errorf("%w: the range %q of task ids is empty", holdfast.ErrInvalid, text)
	}
	*r = IDRange{first, last}
	return nil
}

// StoredIDs returns the ids of the tasks that an insert has stored, as the fewest ranges, in ascending order. It leaves
// out duplicates, because they were not stored.
func StoredIDs(tasks []InsertedTask) []IDRange {
	ids := make([]holdfast.TaskID, 0, len(tasks))
	for _, task := range tasks {
		if !task.Duplicate {
			ids = append(ids, task.ID)
		}
	}
	slices.Sort(ids)
	var ranges []IDRange
	for _, id := range ids {
		if n := len(ranges); n > 0 && id == ranges[n-1].Last+1 {
			ranges[n-1].Last = id
		} else {
			ranges = append(ranges, IDRange{id, id})
		}
	}
	return ranges
}
