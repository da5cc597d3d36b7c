package consumer

import "time"

// ahead decides how many messages the broker may send ahead of their turn: about as many as are worth aheadSpan of work, for
// what waits in this process cannot be run by another one that is idle. How long work takes, only the last moments tell, and
// how many tickets a message carries.
type ahead struct {
	least    int // tickets
	most     int // messages
	messages int // the answer

	since             time.Time
	tickets, carriers int // taken since then, and the messages they came with
}

// aheadSpan is also how often the answer is looked at.
const aheadSpan = 250 * time.Millisecond

func newAhead(concurrency, most int) ahead {
	return ahead{least: 2 * concurrency, most: most, messages: most, since: time.Now()}
}

// see notes a page that was taken.
func (a *ahead) see(tickets, messages int) {
	a.tickets += tickets
	a.carriers += messages
	took := time.Since(a.since)
	if took < aheadSpan {
		return
	}
	// Twice what was taken, so that it can grow.
	worth := max(a.least, int(2*float64(a.tickets)*aheadSpan.Seconds()/took.Seconds()))
	want := min(max(1, worth*a.carriers/max(1, a.tickets)), a.most)
	if want > 2*a.messages || want < a.messages/2 { // for to change it, everything that waits has to go back
		a.messages = want
	}
	a.since, a.tickets, a.carriers = time.Now(), 0, 0
}
