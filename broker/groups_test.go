package broker_test

import (
	"testing"

	"github.com/holdfastq/holdfast/broker"
)

func TestPublishGroupsAreSmallAndComplete(t *testing.T) {
	t.Parallel()
	sizes := []int{10, 1 << 20, 5, 5, 3 << 20, 1 << 19, 1 << 19, 1}
	var messages []broker.Message
	for _, size := range sizes {
		messages = append(messages, broker.Message{Body: make([]byte, size)})
	}
	var got []int
	for group := range broker.PublishGroups(messages) {
		size := 0
		for _, m := range group {
			size += len(m.Body)
			if len(m.Body) != sizes[len(got)] {
				t.Errorf("message %d has %d bytes: out of order", len(got), len(m.Body))
			}
			got = append(got, len(m.Body))
		}
		if size > 1<<20 && len(group) > 1 {
			t.Errorf("a group of %d messages has %d bytes", len(group), size)
		}
	}
	if len(got) != len(sizes) {
		t.Errorf("the groups have %d of %d messages", len(got), len(sizes))
	}
	for range broker.PublishGroups(nil) {
		t.Error("there is a group without messages")
	}
}
