package broker

import "iter"

// groupBytes is the maximum size of the bodies of one publish group.
const groupBytes = 1 << 20

// PublishGroups divides messages into groups, one for each call of Publish, in order. The bodies of a group have at
// most 1 MiB, unless it is a single larger message. Publish has a time limit per call, so groups let the broker confirm
// each call in time.
func PublishGroups(messages []Message) iter.Seq[[]Message] {
	return func(yield func([]Message) bool) {
		for len(messages) > 0 {
			n, size := 1, len(messages[0].Body)
			for n < len(messages) && size+len(messages[n].Body) <= groupBytes {
				size += len(messages[n].Body)
				n++
			}
			if !yield(messages[:n]) {
				return
			}
			messages = messages[n:]
		}
	}
}
