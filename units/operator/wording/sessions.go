package wording

// Questions before an act on a session or a stain, each with room for whose it is.
const (
	ResetQuestion = "Forget what %s has seen? " +
		"Whatever its model still remembers of that is no longer guarded against."
	ThawQuestion  = "Let %s go on?"
	EndQuestion   = "End %s?"
	ClearQuestion = "Take the stain of %q away? What strangers have written there is then the owner's."
)
