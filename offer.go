package holdfast

// Offer tells a worker of tasks that were stored a moment ago in its own process. Their tickets are on their way to the lane,
// whoever takes the offer or not.
type Offer struct {
	Lane    string
	Tickets []Ticket
}
