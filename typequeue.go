package holdfast

import "strings"

// TypeQueue returns the name of the type queue for the tasks of a subqueue with one type, as in "mail.high/invoice". A
// type queue has a main queue and a requeue queue in the broker, like a subqueue. It exists only if the workers of the
// subqueue handle different types: a worker without a handler for the type passes the ticket on to the type queue, and
// only workers with a handler consume it. The task stays in its queue. Names of subqueues contain no slash.
func TypeQueue(subqueue, taskType string) string { return subqueue + "/" + taskType }

// SplitTypeQueue returns the subqueue and the type of a type queue. For the name of a subqueue, the type is empty.
func SplitTypeQueue(name string) (subqueue, taskType string) {
	subqueue, taskType, _ = strings.Cut(name, "/")
	return subqueue, taskType
}
