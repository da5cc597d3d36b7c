package broker_test

import (
	"testing"

	"github.com/holdfastq/holdfast/broker"
)

func TestParcelsAreSmallAndComplete(t *testing.T) {
	t.Parallel()
	sizes := []int{10, 1 << 20, 5, 5, 3 << 20, 1 << 19, 1 << 19, 1}
	var messages []broker.Message
	for _, size := range sizes {
		messages = append(messages, broker.Message{Body: make([]byte, size)})
	}
	var got []int
	for parcel := range broker.Parcels(messages) {
		size := 0
		for _, m := range parcel {
			size += len(m.Body)
			if len(m.Body) != sizes[len(got)] {
				t.Errorf("message %d has %d bytes: out of order", len(got), len(m.Body))
			}
			got = append(got, len(m.Body))
		}
		if size > 1<<20 && len(parcel) > 1 {
			t.Errorf("a parcel of %d messages has %d bytes", len(parcel), size)
		}
	}
	if len(got) != len(sizes) {
		t.Errorf("%d of %d messages", len(got), len(sizes))
	}
	for range broker.Parcels(nil) {
		t.Error("a parcel of nothing")
	}
}
