package holdfast

// Offer tells a worker of a task that was stored a moment ago in its own process. Its ticket is on its way to the lane,
// whether somebody takes the offer or not.
type Offer struct {
	Lane   string
	Ticket Ticket
}
