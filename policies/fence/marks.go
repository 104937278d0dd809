package fence

// Neutral stands where something was that is not to reach a model, and that no honest text has.
const Neutral = "[mark]"

// Role stands where the name of a role was, in a place where models could take it for the beginning of a turn. Logs,
// manuals and configurations have such places as well: of itself it says nothing of who wrote the text.
const Role = "[role]"

func isAlphanumeric(c byte) bool { return isDigit(c) || isLetter(c) }
func isDigit(c byte) bool        { return '0' <= c && c <= '9' }
func isLetter(c byte) bool       { return 'a' <= c|0x20 && c|0x20 <= 'z' }
