package holdfast

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Priority decides which due tasks of a worker start first. It does not interrupt running tasks. Lower priorities keep
// a share of the starts: while tasks of all priorities wait at a worker, about 8 of 15 starts are critical, 4 high, 2
// normal and 1 low. If tasks take longer than about a quarter of a second, the shares are rough. The zero value is
// PriorityNormal.
type Priority int8

// The priorities. In JSON and in texts their names are low, normal, high and critical.
const (
	PriorityLow      Priority = -1
	PriorityNormal   Priority = 0
	PriorityHigh     Priority = 1
	PriorityCritical Priority = 2
)

// priorityNames are the names of the priorities, in the order of their values.
var priorityNames = [...]string{"low", "normal", "high", "critical"}

// Priorities returns all priorities, the lowest first.
func Priorities() []Priority {
	return []Priority{PriorityLow, PriorityNormal, PriorityHigh, PriorityCritical}
}

// String returns the name of the priority.
func (p Priority) String() string {
	if !p.valid() {
		return strconv.Itoa(int(p))
	}
	return priorityNames[p-PriorityLow]
}

func (p Priority) valid() bool { return PriorityLow <= p && p <= PriorityCritical }

// ParsePriority parses the name of a priority, or a number from 0 to 9 as in AMQP 0-9-1 and the Java Message Service: 0
// to 2 are low, 3 to 5 normal, 6 to 8 high, and 9 is critical. In those systems 9 is the highest, and the default of 4
// is normal. ParsePriority returns ErrInvalid for any other text.
func ParsePriority(text string) (Priority, error) {
	if i := slices.Index(priorityNames[:], text); i >= 0 {
		return PriorityLow + Priority(i), nil
	}
	if len(text) == 1 && '0' <= text[0] && text[0] <= '9' {
		return PriorityLow + Priority(text[0]-'0')/3, nil
	}
	return 0, fmt.Errorf("%w: priority %.40q must be low, normal, high or critical, or a number from 0 (low) to 9 (critical)", ErrInvalid, text)
}

// MarshalText implements encoding.TextMarshaler.
func (p Priority) MarshalText() ([]byte, error) {
	if !p.valid() {
		return nil, fmt.Errorf("%w: priority %d is unknown", ErrInvalid, p)
	}
	return []byte(p.String()), nil
}

// UnmarshalText implements encoding.TextUnmarshaler. It accepts the texts that ParsePriority accepts.
func (p *Priority) UnmarshalText(text []byte) error {
	parsed, err := ParsePriority(string(text))
	if err == nil {
		*p = parsed
	}
	return err
}

// UnmarshalJSON implements json.Unmarshaler. It accepts a number, and a string that ParsePriority accepts.
func (p *Priority) UnmarshalJSON(data []byte) error {
	text := string(data)
	if text == "null" {
		return nil
	}
	if data[0] == '"' {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	return p.UnmarshalText([]byte(text))
}

// Subqueue returns the name of the subqueue for the tasks of a queue with one priority. For PriorityNormal it is the
// name of the queue. For other priorities a dot and the name of the priority follow, as in "mail.high". Each subqueue
// has a main queue and a requeue queue in the broker. Stores and brokers treat a subqueue as a queue.
func Subqueue(queue string, p Priority) string {
	if p == PriorityNormal {
		return queue
	}
	return queue + "." + p.String()
}

// SplitSubqueue returns the queue and the priority of a subqueue. Names of queues contain no dot. If this build does
// not know the priority in the name, SplitSubqueue returns the whole name as the queue.
func SplitSubqueue(subqueue string) (queue string, p Priority) {
	queue, name, found := strings.Cut(subqueue, ".")
	if i := slices.Index(priorityNames[:], name); found && i >= 0 {
		return queue, PriorityLow + Priority(i)
	}
	return subqueue, PriorityNormal
}

// QueuesOf returns the queues of the subqueues and type queues, in their order, without duplicates.
func QueuesOf(subqueues []string) []string {
	var queues []string
	for _, name := range subqueues {
		subqueue, _ := SplitTypeQueue(name)
		if queue, _ := SplitSubqueue(subqueue); !slices.Contains(queues, queue) {
			queues = append(queues, queue)
		}
	}
	return queues
}

// Subqueues returns the names of the subqueues of a queue: for the given priorities, or for all if none is given.
func Subqueues(queue string, priorities ...Priority) []string {
	if len(priorities) == 0 {
		priorities = Priorities()
	}
	names := make([]string, len(priorities))
	for i, p := range priorities {
		names[i] = Subqueue(queue, p)
	}
	return names
}
