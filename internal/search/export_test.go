package search

// Local is the time at which the clock of a zone shows the date and the time of day.
var Local = local
