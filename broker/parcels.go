package broker

import "iter"

// parcelBytes bounds the bodies of one parcel.
const parcelBytes = 1 << 20

// Parcels cuts messages into parts for one Publish each, in their order, of at most a MiB unless a single message
// is larger. A publisher's time is limited by the call; whoever passes on messages that strangers wrote must not
// need more of it than a broker can give.
func Parcels(messages []Message) iter.Seq[[]Message] {
	return func(yield func([]Message) bool) {
		for len(messages) > 0 {
			n, size := 1, len(messages[0].Body)
			for n < len(messages) && size+len(messages[n].Body) <= parcelBytes {
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
